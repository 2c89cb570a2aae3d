"""Options of recipes: parser.add_recipe_argument(Option.INPUT, required=True)."""

import argparse
from enum import Enum


class Option(Enum):
    INPUT = "--input"
    CSV = "--csv"
    OUTPUT = "--output"


class ArgumentParser(argparse.ArgumentParser):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.recipe_group = self.add_argument_group("Recipe")

    def add_recipe_argument(self, option, **kwargs):
        if option is Option.INPUT:
            self.recipe_group.add_argument("--input", nargs="+", **kwargs)
        elif option is Option.CSV:
            self.recipe_group.add_argument("--csv", action="store_true", **kwargs)
        else:
            self.recipe_group.add_argument(option.value, **kwargs)
