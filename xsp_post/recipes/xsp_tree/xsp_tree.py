"""nsys recipe ``xsp_tree``: the model → layer → kernel tree of many reports, by xsp-post.

Runs in the Python of Nsight Systems and needs nothing of xsp-post there: each report is analysed by xsp-post's
own interpreter, named in interpreter.json (written by ``xsp-post recipe-path``) or in XSP_POST_PYTHON.
Interface of the base classes: Nsight Systems documentation, "Post-collection analysis: recipes".
"""

import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from nsys_recipe.lib import recipe
from nsys_recipe.lib.args import Option

TABLES = ("paths", "captures", "a02", "a10", "findings")


class XspTree(recipe.Recipe):
    """Maps every report to its tables, and puts them side by side with the report's rank."""

    @staticmethod
    def _mapper_func(report_path: object, parsed_args: object) -> tuple[str, dict[str, pd.DataFrame]] | None:
        """(report, {table: DataFrame}), or None where the report cannot be analysed. Runs in a worker."""
        with tempfile.TemporaryDirectory(prefix="xsp-tree-") as folder:
            command, environment = XspTree._interpreter()
            done = subprocess.run(
                [*command, "xsp_post.recipes", str(report_path), folder, *TABLES],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.stderr.write(f"xsp_tree: {done.stderr.strip()[-2000:]}\n")
                return None
            return str(report_path), {name: XspTree._read(Path(folder) / f"{name}.csv") for name in TABLES}

    @staticmethod
    def _interpreter() -> tuple[list[str], dict[str, str]]:
        """The command that runs a module in an interpreter that has xsp-post, and its environment. It does not look for
        modules in the current folder."""
        known = json.loads(Path(__file__).with_name("interpreter.json").read_text(encoding="utf-8"))
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH")}
        environment["PYTHONSAFEPATH"] = "1"  # from 3.11 on; 3.13 imports modules before it runs a program given by -c
        if known["path"]:
            environment["PYTHONPATH"] = known["path"]
        return [os.environ.get("XSP_POST_PYTHON") or known["python"], "-c", known["start"]], environment

    @staticmethod
    def _read(path: Path) -> pd.DataFrame:
        return pd.read_csv(path, keep_default_na=True) if path.stat().st_size else pd.DataFrame()

    def mapper_func(self, context: Any) -> Any:
        return context.wait(context.map(self._mapper_func, self._parsed_args.input, parsed_args=self._parsed_args))

    def reducer_func(self, mapper_res: Any) -> None:
        """One file per table over all reports; a report's rank is its position among the reports by name."""
        results = sorted((one for one in mapper_res if one is not None), key=lambda one: one[0])
        if not results:
            raise ValueError("xsp_tree: no report could be analysed; the reasons are above")
        files = pd.DataFrame({"File": [name for name, _ in results]}).rename_axis("Rank")
        files.to_parquet(self.add_output_file("files.parquet"))
        for table in TABLES:
            frames = [tables[table].assign(Rank=rank) for rank, (_, tables) in enumerate(results) if len(tables[table])]
            if not frames:
                continue
            together = pd.concat(frames, ignore_index=True)
            name = "xsp_tree" if table == "paths" else table
            together.to_parquet(self.add_output_file(f"{name}.parquet"))
            if getattr(self._parsed_args, "csv", False):
                together.to_csv(self.add_output_file(f"{name}.csv"), index=False)

    def save_notebook(self) -> None:
        self.create_notebook("xsp_tree.ipynb")
        self.add_notebook_helper_file("nsys_display.py")

    def save_analysis_file(self) -> None:
        self._analysis_dict.update({"EndTime": str(datetime.now()), "Outputs": self._output_files})
        self.create_analysis_file()

    def run(self, context: Any) -> None:
        super().run(context)
        self.reducer_func(self.mapper_func(context))
        self.save_notebook()
        self.save_analysis_file()

    @classmethod
    def get_argument_parser(cls) -> Any:
        parser = super().get_argument_parser()
        parser.add_recipe_argument(Option.INPUT, required=True)
        parser.add_recipe_argument(Option.CSV)
        return parser
