"""A stand-in of NVIDIA's nsys_recipe package: the interface that its documentation describes, and no more."""
