"""Many captures → one store each and one fleet store: `run_batch`, on this machine or on a Dask cluster.

`jobs` finds the captures and groups what belongs together, `work` analyses one of them (in a worker),
`engines` hands jobs to workers and survives theirs deaths, `assembly` puts the small frames that come back
side by side. A finished capture has a record in the output folder; that is what makes a batch resumable.
"""

from xsp_post.base.lazy import lazily

# a batch with nothing to do must not load pandas
__getattr__ = lazily(__name__, {"discover": "jobs", "Job": "jobs", "run_batch": "assembly", "BatchResult": "assembly"})
