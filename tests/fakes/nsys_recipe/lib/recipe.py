"""Base class of recipes and the contexts of the three modes."""

import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from nsys_recipe.lib.args import ArgumentParser


class Recipe:
    def __init__(self, parsed_args):
        self._parsed_args = parsed_args
        self._output_dir = Path(parsed_args.output)
        self._output_files = []
        self._analysis_dict = {}

    @classmethod
    def get_argument_parser(cls):
        parser = ArgumentParser()
        parser.add_argument("--output", required=True)
        parser.add_argument("--mode", choices=["none", "concurrent", "dask-futures"], default="concurrent")
        return parser

    def add_output_file(self, name):
        self._output_files.append(name)
        return os.path.join(self._output_dir, name)

    def create_notebook(self, name):
        source = Path(self._recipe_file).with_name(name)
        shutil.copy(source, self._output_dir / name)
        self._output_files.append(name)

    def add_notebook_helper_file(self, name):
        (self._output_dir / name).write_text("# helper\n")

    def create_analysis_file(self):
        path = self._output_dir / f"{self._output_dir.name}.nsys-analysis"
        path.write_text(json.dumps(self._analysis_dict))

    def run(self, context):
        self._output_dir.mkdir(parents=True, exist_ok=False)


class SerialContext:
    def map(self, function, items, **kwargs):
        return [function(item, **kwargs) for item in items]

    def wait(self, results):
        return results


class ConcurrentContext:
    def __enter__(self):
        self._pool = ProcessPoolExecutor(2)
        return self

    def __exit__(self, *_):
        self._pool.shutdown()

    def map(self, function, items, **kwargs):
        return self._pool.map(partial(function, **kwargs), items)

    def wait(self, results):
        return list(results)


class DaskFuturesContext:
    def __init__(self, client):
        self._client = client

    def map(self, function, items, **kwargs):
        return self._client.map(function, items, **kwargs)

    def wait(self, results):
        return self._client.gather(results)
