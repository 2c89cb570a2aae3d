"""Every code of xsp-post with its texts: errors end a command (`ERRORS`), findings are kept with results (`FINDINGS`).

Plain data: one entry a code. docs/messages.md is generated from it. A new code is one entry here.
"""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)

# The cure of findings about missing ranges. Lines that are indented are code, to be shown as lines.
HOW_TO_RECORD = """To record true layers, put three lines into the program:
    import xsp_post
    with xsp_post.ranges(model):
        model(inputs)
and run: nsys profile -t cuda,nvtx,cublas,cudnn --cuda-graph-trace=node -o report python program.py"""


@dataclass(frozen=True)
class ErrorText:
    """What an error code means: cause and cure."""

    cause: str
    cure: str


@dataclass(frozen=True)
class FindingText:
    """What a finding code means: default severity, title, cause and cure."""

    severity: str
    title: str
    cause: str
    cure: str


ERRORS: dict[str, ErrorText] = {
    "bad-change": ErrorText(
        "A --change of what-if cannot be read: its subject, pattern or value is not known.",
        "Write SUBJECT[:REGEX]=VALUE, e.g. `kernel:.*sgemm.*=0.5x`, `launch=graph` (docs/what-if.md lists them).",
    ),
    "bad-executions": ErrorText(
        "--executions is not a known rule, or stands beside --model-range.",
        "Give one of the words that `xsp-post tree --help` lists, or a pattern with --model-range.",
    ),
    "bad-layer-depth": ErrorText(
        "--layer-depth is below 1.",
        "Depth 1 is the first range below the model.",
    ),
    "bad-limit": ErrorText(
        "--limit is below 1.",
        "Give the largest number of kernels that a timeline may hold, or leave the option out.",
    ),
    "bad-range-pattern": ErrorText(
        "A pattern given with --model-range or --layer-range is not a valid regular expression.",
        "Quote the pattern for the shell. `.` and `(` are special characters: write `layer1\\.conv` for a literal dot.",
    ),
    "bar-below-power": ErrorText(
        "A condition of --fail-if is smaller than the smallest change that these captures could show.",
        "Record several captures of each side (xsp-post run --repeat 5) or more iterations, or allow more.",
    ),
    "bad-time": ErrorText(
        "A time on the command line cannot be read.",
        "Write a number with its unit, e.g. 1.2s, 350ms, 40us. Times count as in the columns start_ns of a "
        "capture of nsys, and from the first event of other traces. --from is before --until (also called --to).",
    ),
    "nothing-in-part": ErrorText(
        "--iteration, --from or --until leave nothing of the recording, or there is no recording to take a part of.",
        "`xsp-post table iterations` lists the model executions with their times; of a folder of many captures no "
        "part can be taken: name one capture or its store.",
    ),
    "bar-not-met": ErrorText(
        "A condition of --fail-if holds: the other capture differs from the base by more than it allows.",
        "Look at `xsp-post compare BASE OTHER` for the layers and kernels that changed.",
    ),
    "bar-syntax": ErrorText(
        "A condition of --fail-if cannot be read.",
        "Write QUANTITY>NUMBER%, e.g. 'model_latency>3%' (in quotes, because the shell interprets >). Quantities: "
        "model_latency, throughput, kernel_latency, gpu_busy, kernel_count, device_time, idle, copy_time, "
        "communication, memory_peak, memory_reserved, layer_latency, kernel_time. The last two take a name.",
    ),
    "bar-unknown": ErrorText(
        "The quantity of a --fail-if condition is missing in one of the captures, so it cannot be compared.",
        "Record it in both: model executions for model_latency, layers for layer_latency, kernels for kernel_time, "
        "allocations for memory_peak.",
    ),
    "batch-all-failed": ErrorText(
        "No capture of the batch could be analysed.",
        "The table fleet gives the reason for each capture: xsp-post table fleet DIR/fleet.xsp.sqlite.",
    ),
    "batch-defect": ErrorText(
        "xsp-post failed on this capture with an unexpected error. This is a defect of xsp-post.",
        "Report it with the message. `XSP_POST_DEBUG=1 xsp-post ingest FILE` shows the traceback. Other captures are "
        "not affected.",
    ),
    "batch-folder": ErrorText(
        "The output folder exists and was not made by xsp-post batch. Nothing in it was changed.",
        "Name another folder with -o, or an empty one.",
    ),
    "batch-list": ErrorText(
        "The list of captures (@FILE) cannot be read.",
        "Give a text file with one path a line, UTF-8.",
    ),
    "batch-nothing": ErrorText(
        "None of the paths given holds a file that could be a capture.",
        "Name captures (`xsp-post ingest --help` lists the formats), folders that `xsp-post run` made, or folders of "
        "them.",
    ),
    "batch-some-failed": ErrorText(
        "With --strict: some captures of the batch could not be analysed.",
        "The table fleet gives the reason for each capture: xsp-post table fleet DIR/fleet.xsp.sqlite.",
    ),
    "batch-worker-died": ErrorText(
        "The process that analysed this capture ended twice without a message. The usual reason is too little memory.",
        "Use fewer --workers, or a machine with more memory. `xsp-post ingest FILE` analyses this capture alone.",
    ),
    "batch-workers": ErrorText(
        "--workers is below 1, or was given together with --scheduler.",
        "Use one of the two.",
    ),
    "capture-bad-column": ErrorText(
        "A column holds values of a type that no nsys version writes.",
        "The file was edited or damaged: export it again.",
    ),
    "capture-column-missing": ErrorText(
        "A table of the capture lacks a required column. Every nsys version writes it, and the rows cannot be "
        "interpreted without it.",
        "Export the report again. The file may have been edited, or written by another program.",
    ),
    "capture-damaged": ErrorText(
        "SQLite reports that the database is damaged: the file was truncated or overwritten.",
        "Export the report again with `nsys export -t sqlite`, or copy the file again.",
    ),
    "capture-empty": ErrorText(
        "The file has zero bytes.",
        "Export or copy the capture again; the disk may have been full.",
    ),
    "capture-is-directory": ErrorText(
        "A folder was given where one capture is needed, and it is not an exported parquetdir or arrowdir.",
        "Name the file inside it, or use `xsp-post batch` for a folder of captures.",
    ),
    "capture-is-store": ErrorText(
        "A store (.xsp.sqlite) was given where a capture was wanted.",
        "Use tree, table, report or export on a store; ingest takes captures.",
    ),
    "capture-lfs-pointer": ErrorText(
        "The file is a Git LFS pointer: a few lines of text in place of the real file.",
        "Run `git lfs pull` in that repository, then try again.",
    ),
    "capture-locked": ErrorText(
        "Another program holds a lock on the database.",
        "Close the program that writes it (an export may still be running), or ingest a copy.",
    ),
    "capture-manifest": ErrorText(
        "A manifest or capture description cannot be read: missing, damaged, or of a newer xsp-post.",
        "Repeat the capture with --resume, or use the xsp-post that wrote it.",
    ),
    "capture-no-export": ErrorText(
        "The file is a database or folder, but it has none of the tables of an Nsight Systems export.",
        "Give the output of `nsys export -t sqlite`; DLProf and nvprof databases are not exports.",
    ),
    "capture-no-file": ErrorText(
        "A pipe or a device was given. A database cannot be read from it, because reading starts at several positions.",
        "Save the capture to a file and name that.",
    ),
    "capture-not-found": ErrorText(
        "No file of that name exists.",
        "Check the path; quote names with spaces or wildcards.",
    ),
    "capture-nvprof": ErrorText(
        "The file is a database of nvprof or the NVIDIA Visual Profiler. Its tables "
        "(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, StringTable) differ from those of Nsight Systems.",
        "Record the program again with nsys profile.",
    ),
    "capture-over-limit": ErrorText(
        "The source holds much more than a real capture of its size: a compressed file that grows a hundredfold, or "
        "one event of hundreds of megabytes. The message names the limit.",
        "Check the file. If it is a real capture, lift the limits: XSP_POST_NO_LIMITS=1 xsp-post …",
    ),
    "capture-qdstrm": ErrorText(
        "A .qdstrm file is the raw stream that nsys leaves when its importer is missing or failed.",
        "Run `nsys import --input-file FILE.qdstrm` with the same nsys version, then ingest the .nsys-rep.",
    ),
    "capture-rows-lost": ErrorText(
        "SQLite counts more rows in a table of the capture than can be read from it: its pages are damaged.",
        "Export the report again, or copy the file again.",
    ),
    "capture-unknown-format": ErrorText(
        "The content does not match any format that xsp-post reads. `xsp-post ingest --help` lists the formats.",
        "Give the file that nsys, ncu or torch.profiler wrote.",
    ),
    "capture-unmerged": ErrorText(
        "A write-ahead log or a rollback journal of SQLite is in the folder of the file. It holds changes that the "
        "file itself does not have, so the file alone is an older or a half-written state.",
        "Wait until the program that writes the file has ended, or merge the log: sqlite3 FILE 'PRAGMA "
        "wal_checkpoint(TRUNCATE)'. Move the log away if it belongs to another file.",
    ),
    "capture-unreadable": ErrorText(
        "The file exists, but the operating system does not allow reading it.",
        "Give yourself read permission, or copy the file to a place you own.",
    ),
    "capture-view": ErrorText(
        "A view (a stored query) or a virtual table has the name of a table of the capture. A query decides what it "
        "holds, how long that takes and whether it ends, so it is not read.",
        "Make a table of it in a copy: CREATE TABLE kept AS SELECT * FROM the view; DROP VIEW; rename the table.",
    ),
    "captures-unlike": ErrorText(
        "Captures of different workloads, devices or versions cannot be merged into one leveled analysis.",
        "Measure all levels on the same machine with the same settings, or use xsp-post compare.",
    ),
    "change-matches-nothing": ErrorText(
        "A --change of what-if names a kernel, layer, copy, call or range that the capture does not hold.",
        "Look up the names: `xsp-post table A10` lists kernels, `xsp-post table A2` layers. A pattern is searched "
        "anywhere in a name.",
    ),
    "child-failed": ErrorText(
        "The measured child process (or the profiler around it) ended with an error; its last lines are shown.",
        "Fix the problem that the lines report, then continue with --resume.",
    ),
    "child-hung": ErrorText(
        "The measured child process did not end within the time limit and was stopped.",
        "Raise --timeout, or continue with --resume.",
    ),
    "child-memory": ErrorText(
        "The measured child process ran out of memory.",
        "Leave this batch size out, or choose a smaller --dtype.",
    ),
    "child-start": ErrorText(
        "The measured child process, or the profiler around it, could not be started.",
        "Check what is installed: xsp-post doctor.",
    ),
    "choices-file": ErrorText(
        "The file xsp-post.toml beside the captures cannot be used.",
        "Write one line for each choice, e.g. layer-range = 'block.*'. Keys are options of `xsp-post ingest --help`, "
        "without the dashes (docs/choices.md).",
    ),
    "cluster-missing": ErrorText(
        "--scheduler needs Dask's distributed package.",
        "pip install 'xsp-post[cluster]'",
    ),
    "cluster-unreachable": ErrorText(
        "The Dask scheduler does not answer at the given address, or refuses the connection.",
        "Start one (`dask scheduler`, `dask worker tcp://HOST:8786`). Check that its dask version matches the local "
        "one, and that its workers can import xsp_post and see the captures and the output folder under the same "
        "paths.",
    ),
    "collector-missing": ErrorText(
        "The requested collector cannot be used on this machine.",
        "Install what the message names, or use --collector auto.",
    ),
    "collector-unknown": ErrorText(
        "No collector has this name.",
        "Use --collector auto, nsys or torch.",
    ),
    "defect-internal": ErrorText(
        "xsp-post failed with an unexpected error. This is a defect of xsp-post.",
        "Report it with the message. `XSP_POST_DEBUG=1 xsp-post …` shows the traceback.",
    ),
    "device-missing": ErrorText(
        "The requested device does not exist, or torch cannot use it.",
        "Use --device cpu, or run xsp-post doctor to see what is missing (driver, a CUDA build of torch).",
    ),
    "export-format": ErrorText(
        "There is no exporter of that name.",
        "`xsp-post export --help` lists the formats.",
    ),
    "export-no-capture": ErrorText(
        "The results hold no capture of that number, or none at all.",
        "`xsp-post table captures STORE` lists the captures and their numbers.",
    ),
    "frame-malformed": ErrorText(
        "A frame that a reader or a step made lacks a declared column, or an index in it points to nothing.",
        "This is a defect of xsp-post, not of the capture: please report it with the capture's schema version.",
    ),
    "jaeger-unreadable": ErrorText(
        "The file is not a trace in Jaeger's JSON, or it holds no span.",
        "Export it from the Jaeger UI (Trace JSON) or with xsp-post export --to jaeger.",
    ),
    "json-too-deep": ErrorText(
        "The JSON is nested deeper than Python can read (about 900 levels). A trace has fewer than ten levels.",
        "The file is damaged or is not a trace: export the trace again.",
    ),
    "layer-kind": ErrorText(
        "The model has no module of the class given with --layer-kind.",
        "Give class names as print(model) shows them, e.g. --layer-kind Conv2d,Linear.",
    ),
    "layers-compiled": ErrorText(
        "torch.compile fuses the modules, so there are no module calls that a layer range could be put around.",
        "Measure the compiled model at levels M and M/L/G, or the uncompiled one at all levels.",
    ),
    "model-factory": ErrorText(
        "The factory did not return (module, inputs).",
        "Return an nn.Module and its inputs: a tensor, a tuple or a dict; a third value may name phases.",
    ),
    "model-input": ErrorText(
        "The model cannot be built or run with this input shape, mode or type.",
        "Choose other --input-shape, --mode or --dtype.",
    ),
    "model-package": ErrorText(
        "The model comes from a package that is not installed.",
        "Install the package that the message names, or choose a built-in model.",
    ),
    "model-unknown": ErrorText(
        "No model, file or factory has that name.",
        "Use a built-in name, torchvision:NAME, timm:NAME, transformers:CLASS or path/to/file.py:factory.",
    ),
    "ncu-csv-unreadable": ErrorText(
        "The CSV has no header line of the raw page (ID, Kernel Name, …), or no kernel below it.",
        "Write it with: ncu --import FILE.ncu-rep --csv --page raw --print-units base > FILE.csv",
    ),
    "ncu-import-failed": ErrorText(
        "`ncu --import` ended with an error.",
        "Read its message. The report may be newer than the installed ncu.",
    ),
    "ncu-missing": ErrorText(
        "Nsight Compute was not found, so no hardware counters can be read.",
        "Install Nsight Compute from NVIDIA, or set XSP_NCU to its path, or run without --ncu.",
    ),
    "ncu-needs-gpu": ErrorText(
        "Hardware counters exist on GPUs only, and this run measures the CPU.",
        "Use --device cuda, or leave --ncu out: the flop of the layers are then counted from the model.",
    ),
    "ncu-no-kernels": ErrorText(
        "Nsight Compute ran, but it did not profile any kernel of the model.",
        "Read its messages in the logs of the capture. Possible reasons: MIG, a container without the driver's "
        "libraries, or another profiler on the GPU.",
    ),
    "ncu-no-report": ErrorText(
        "Nsight Compute wrote no report.",
        "Its last lines give the reason. See also xsp-post doctor.",
    ),
    "ncu-permission": ErrorText(
        "The driver lets only administrators read GPU counters (ERR_NVGPUCTRPERM).",
        "As root: write `options nvidia NVreg_RestrictProfilingToAdminUsers=0` to a file in "
        "/etc/modprobe.d, rebuild the initramfs and reboot (0 in `grep RmProfilingAdminOnly "
        "/proc/driver/nvidia/params` means open); or run as root or with CAP_SYS_ADMIN; in a container: "
        "--cap-add=SYS_ADMIN. Timing runs do not need this.",
    ),
    "ncu-reader-missing": ErrorText(
        "A .ncu-rep file needs NVIDIA's ncu_report package or Nsight Compute to be read.",
        "pip install 'xsp-post[ncu]', or put ncu on PATH, or give the CSV that `ncu --import FILE --csv --page raw` "
        "writes.",
    ),
    "ncu-report-unreadable": ErrorText(
        "The file is not an Nsight Compute report with results. It is empty, truncated, from another program, or "
        "written by an Nsight Compute version newer than the reader.",
        "Open it in ncu-ui, record it again, or update the reader: pip install -U ncu-report.",
    ),
    "nsys-export": ErrorText(
        "nsys recorded a report but could not export it to SQLite.",
        "Export it by hand with `nsys export --type sqlite`, on a local disk, then `xsp-post ingest` it.",
    ),
    "nsys-export-failed": ErrorText(
        "nsys was found, but it could not export the report. Its message is shown.",
        "Only the nsys version that wrote a report, or a newer one, can read it.",
    ),
    "nsys-missing": ErrorText(
        "Only nsys can read a .nsys-rep file, and nsys was not found on this machine.",
        "Run the command in the message on a machine with nsys, then ingest the SQLite file that it writes.",
    ),
    "nsys-no-importer": ErrorText(
        "nsys left a .qdstrm file: this installation can record but not import (collector only, as in Nsight Compute).",
        "Install Nsight Systems itself, or import it with the same version: nsys import --input-file X.qdstrm.",
    ),
    "nsys-no-report": ErrorText(
        "nsys ended, but it did not write a report.",
        "Read its last lines. Try --collector torch, and run xsp-post doctor.",
    ),
    "nvtx-missing": ErrorText(
        "The Python package nvtx, which writes ranges for nsys and ncu, is not installed.",
        "pip install 'xsp-post[run]'.",
    ),
    "option-unknown": ErrorText(
        "An option of the analyses has a value that does not exist.",
        "Use one of the values that the message lists.",
    ),
    "out-of-memory": ErrorText(
        "The system gave no more memory to xsp-post.",
        "Use a machine with more memory, or export a part of the recording: nsys export --times.",
    ),
    "output-denied": ErrorText(
        "The folder of the output cannot be written to: permission is missing, or the file system is read-only.",
        "Name another output with -o, or change the permissions of the folder.",
    ),
    "output-exists": ErrorText(
        "A file with the name of the output exists. It was not changed.",
        "Use --force to replace it, or name another output with -o.",
    ),
    "output-failed": ErrorText(
        "The system refused to write the output for the reason given.",
        "Name another output with -o.",
    ),
    "output-folder": ErrorText(
        "The output names a folder where a file is needed (or the reverse), or its folder does not exist.",
        "Name a file in an existing folder with -o.",
    ),
    "output-full": ErrorText(
        "The disk became full while the output was written. The incomplete output was removed.",
        "Free some space, or write to another disk with -o.",
    ),
    "output-is-source": ErrorText(
        "The output names the capture that is read: writing it would destroy the recording.",
        "Name another output with -o; --force does not change this.",
    ),
    "output-no-file": ErrorText(
        "The output names a device, a pipe, a socket, or a link to nothing. An output takes the place of a file in one "
        "step, so only a file can be replaced, also with --force. A link to a file is followed.",
        "Name a file with -o. Commands that print their result can be redirected instead.",
    ),
    "outputs-same": ErrorText(
        "One name was given for two outputs.",
        "Name the store with -o and the page with --report.",
    ),
    "parquet-needs-file": ErrorText(
        "Parquet is binary and is not written to a terminal.",
        "Give a file: -o table.parquet",
    ),
    "peaks-file": ErrorText(
        "The file that overrides the peaks of a GPU cannot be read, or holds a key or value that is not a peak.",
        "Correct the key that the message names. `xsp-post doctor --measure-peaks` writes a valid file.",
    ),
    "perfetto-missing": ErrorText(
        "The Python package that writes Perfetto traces is not installed.",
        "pip install 'xsp-post[perfetto]', or export to Chrome JSON (`--to chrome`), which Perfetto opens as well.",
    ),
    "executions-not-found": ErrorText(
        "The capture has no model executions of the kind that --executions asks for.",
        "Leave the option out: `xsp-post tree CAPTURE` says what was found.",
    ),
    "range-pattern-matches-nothing": ErrorText(
        "No range of the capture matches the pattern.",
        "Look at the names with `xsp-post tree CAPTURE`; the pattern is searched in `domain:text` and in `text`.",
    ),
    "agent-folder": ErrorText(
        "The path given to xsp-post mcp is not a folder.",
        "Name the folder that holds the captures and stores.",
    ),
    "agent-missing": ErrorText(
        "The source asked for is not in the served folder, or it is too large a folder.",
        "Ask the tool `sources` what is there.",
    ),
    "agent-needs-export": ErrorText(
        "An .nsys-rep must be exported by nsys before it can be read, and the server writes nothing.",
        "Export it first: nsys export --type sqlite report.nsys-rep, or make a store with xsp-post ingest.",
    ),
    "agent-outside": ErrorText(
        "The source asked for lies outside the served folder, by its name or through a link.",
        "Copy it into the folder, or serve the folder that holds it.",
    ),
    "mcp-missing": ErrorText(
        "xsp-post mcp needs the package mcp.",
        "Install it: pip install 'xsp-post[mcp]'.",
    ),
    "xlsxwriter-missing": ErrorText(
        "export --to xlsx needs the package xlsxwriter.",
        "Install it: pip install 'xsp-post[xlsx]'.",
    ),
    "ranges-sink": ErrorText(
        "Ranges can go to NVTX or to torch.profiler.",
        "Use to='nvtx' under nsys or ncu, to='torch' under torch.profiler, or leave it out.",
    ),
    "recipe-folder": ErrorText(
        "The folder for the recipes cannot be made or written.",
        "Name another with -o: xsp-post recipe-path -o FOLDER.",
    ),
    "replay-refused": ErrorText(
        "The replay of the unchanged recording differs from its measured length by more than 5 %, or the recording "
        "lacks launch rows. A prediction would have at least that error.",
        "Record the whole run with all CUDA calls traced. Kernels that were launched before the capture began have no "
        "launch row.",
    ),
    "report-format": ErrorText(
        "That format of a report is not offered.",
        "Use html, json, png or svg.",
    ),
    "report-no-case": ErrorText(
        "The store has no such case.",
        "Leave --case out; xsp-post table cases lists them.",
    ),
    "report-no-chart": ErrorText(
        "The requested part of the report has no chart: its data was not recorded, or it is a table.",
        "`xsp-post report STORE --json` lists the available charts; `xsp-post table` prints a table.",
    ),
    "report-no-section": ErrorText(
        "No part of the report has that name.",
        "Use A1 … A15 or a section: layers, tree, kernels …",
    ),
    "run-all-out-of-memory": ErrorText(
        "Every batch size ran out of memory; nothing could be measured.",
        "Begin with a smaller --batch-size, or choose a smaller --dtype.",
    ),
    "run-exists": ErrorText(
        "The output folder exists and is not empty. It was not changed.",
        "Continue it with --resume, replace it with --force, or name another folder with -o.",
    ),
    "run-plan": ErrorText(
        "An option of the run has a value that cannot be used.",
        "See xsp-post run --help.",
    ),
    "run-unlike": ErrorText(
        "The run in this folder measured another workload.",
        "Repeat the options of the first call, or start a new folder with -o.",
    ),
    "source-twice": ErrorText(
        "One capture was named twice (perhaps once through a link).",
        "Name every capture once: each counts as a separate recording.",
    ),
    "spans-damaged": ErrorText(
        "A file of clock readings (spans.json) of `xsp-post run` is incomplete or was changed.",
        "Repeat the capture: xsp-post run … --resume.",
    ),
    "stdout-failed": ErrorText(
        "Standard output is closed, or what it is redirected to is full or broken: the output is incomplete.",
        "Redirect it to a file on a disk with free space, or to /dev/null.",
    ),
    "store-damaged": ErrorText(
        "Rows of the store are missing, exist twice, or refer to rows that do not exist: it was edited or damaged.",
        "Ingest the captures again; the hint names the command.",
    ),
    "store-table-missing": ErrorText(
        "The store lacks a table or a column that was written to it: it is incomplete, or another program changed it.",
        "Ingest the captures again.",
    ),
    "store-of-batch": ErrorText(
        "The command shows one capture, and the file is the store that batch made of many.",
        "xsp-post table fleet_models STORE, xsp-post report STORE, or the command with one of the stores beside it.",
    ),
    "store-version": ErrorText(
        "The store was written by another version of xsp-post whose tables differ.",
        "Ingest the captures again with this version.",
    ),
    "torch-missing": ErrorText(
        "The command needs torch, which is not installed.",
        "pip install 'xsp-post[run]'.",
    ),
    "trace-not-json": ErrorText(
        "The file is not a JSON trace, or its JSON is damaged.",
        "Give the file that torch.profiler's export_chrome_trace wrote, as .json or .json.gz.",
    ),
    "trace-truncated": ErrorText(
        "The trace ends in the middle: the program was killed, or the disk became full, while the trace was written.",
        "Record the trace again and let the program finish; export fewer steps if the disk is small.",
    ),
    "trace-without-events": ErrorText(
        "The file is JSON but not a trace: it has no list of events, or no event that a PyTorch profiler writes.",
        "Give the file that torch.profiler's export_chrome_trace wrote.",
    ),
    "tree-lost-kernels": ErrorText(
        "The number of kernels or the kernel time in the tree differs from the capture.",
        "This is a defect of xsp-post, not of the capture: please report it with the capture's schema version.",
    ),
    "tree-not-additive": ErrorText(
        "The device time of a node differs from the sum of its own device time and that of its children.",
        "This is a defect of xsp-post, not of the capture: please report it with the capture's schema version.",
    ),
    "twin-without-launches": ErrorText(
        "The source given with --layers-from is a counter report or holds no timeline.",
        "Give a capture of the same program with ranges: an nsys export or a PyTorch trace.",
    ),
    "unattributed-too-much": ErrorText(
        "With --strict: more kernel time lies outside every range than the limit allows.",
        "Put ranges around the uncovered launches (`with xsp_post.ranges(model):`), or raise --unattributed-limit.",
    ),
    "unknown-column": ErrorText(
        "--sort names a column that the table does not have.",
        "Columns are listed in the message and in docs/columns.md.",
    ),
    "unknown-format": ErrorText(
        "That output format is not offered.",
        "Use table, csv, json, md or parquet.",
    ),
    "unknown-table": ErrorText(
        "No table of that name is in the store or can be made from the captures.",
        "Names are A1…A15 or those of docs/columns.md; the message lists the available tables.",
    ),
    "workloads-unlike": ErrorText(
        "The captures belong to different workloads: model, framework or GPU differ.",
        "Analyse each workload separately, or compare them: xsp-post compare.",
    ),
}

FINDINGS: dict[str, FindingText] = {
    "above-roof": FindingText(
        WARNING,
        "Kernels or layers faster than their roof",
        "A kernel or layer reached more than a peak. Possible reasons: the GPU ran above the clock of its data sheet, "
        "the peak of another pipe or board was used, timing and counters are from different kernels, or, where the "
        "work is counted from sizes, data was still in L2 and did not come from DRAM.",
        "The finding says what is most likely, by where flop and bytes are from (a08.metric_source, "
        "a14.counter_source). Where the board has other peaks, give them with --peaks.",
    ),
    "allocation-is-output-size": FindingText(
        INFO,
        "Allocated memory is the size of the outputs",
        "torch's CPU allocator keeps no statistics; the bytes of each layer's output tensors are used instead.",
        "Run on a GPU, where the statistics of the allocator are used.",
    ),
    "busy-exceeds-children": FindingText(
        ERROR,
        "Busy time of a node exceeds what its children explain",
        "A node's busy time must be at most the sum of its children's and its own.",
        "This is a defect of xsp-post: please report it.",
    ),
    "busy-exceeds-projection": FindingText(
        ERROR,
        "Busy time of a node exceeds the length of its projection",
        "All device work of such a node was launched inside it, so it must lie between its first start and last end.",
        "This is a defect of xsp-post: please report it.",
    ),
    "child-outside-parent": FindingText(
        WARNING,
        "Ranges that overlap partially",
        "Start/end ranges may overlap without nesting; such a range is placed below the shortest range around it.",
        "Nothing to do if the program intends this. Use push/pop ranges where layers should nest.",
    ),
    "clock-offset-unknown": FindingText(
        WARNING,
        "Layers and launches may be on different clocks",
        "Launches lie outside every layer, and no constant shift of the layers explains it well enough. No time was "
        "shifted.",
        "Compare with a capture of one profiler (nsys, torch.profiler).",
    ),
    "clocks-differ": FindingText(
        WARNING,
        "Layers and launches were on different clocks",
        "Under a constant shift of the layers more launches lie inside a layer than without it: the two "
        "profilers mapped their clocks to wall time differently. The layers were shifted; the attribution "
        "depends on it.",
        "Nothing is wrong with this trace. Captures of one profiler (nsys, torch.profiler) have one clock.",
    ),
    "columns-missing": FindingText(
        WARNING,
        "Columns that nsys writes are missing",
        "The export was edited, or another program wrote it. The values of these columns are not known. The example "
        "names each column and what it is needed for.",
        "Export the report again: nsys export -t sqlite REPORT.nsys-rep",
    ),
    "counters-averaged": FindingText(
        WARNING,
        "Kernels with the mean counters of their name",
        "These kernels could not be distinguished by range and order, so each has the mean over all results of"
        " its name (of the same launch dimensions where there are any).",
        "Record the counters of the same program, batch size and iteration, with --nvtx.",
    ),
    "counters-counts-differ": FindingText(
        WARNING,
        "A layer launched other kernels under the counters",
        "The number of kernels in these ranges differs between the timing run and the counter run "
        "(autotuning, lazy loading, another batch size, launch filters). They were matched by name.",
        "Warm up before both runs, and profile one whole iteration.",
    ),
    "counters-kernels-without": FindingText(
        WARNING,
        "Kernels without counters",
        "No result of the counter reports fits these kernels.",
        "Profile a whole iteration with ncu, without launch filters (-k, -s, -c); xsp-post run --ncu does.",
    ),
    "counters-metrics-left-out": FindingText(
        INFO,
        "Metrics that no quantity needs were not kept",
        "The report holds more values than is sensible to store; only those that our quantities are computed from "
        "were read.",
        "Record fewer metrics: ncu --metrics NAME,NAME.",
    ),
    "counters-no-ranges": FindingText(
        INFO,
        "Counters without ranges",
        "Nsight Compute ran without --nvtx, or the program has no ranges: its kernels can be matched by "
        "name and order only.",
        "Record with ncu --nvtx around a program with ranges.",
    ),
    "counters-not-a-number": FindingText(
        WARNING,
        "Counters without a value",
        "The report lists these metrics without a number (NaN, n/a): the GPU or driver could not collect "
        "them, or a pass failed. They count as not recorded.",
        "Record these metrics again by themselves, or leave them out.",
    ),
    "counters-of-another-gpu": FindingText(
        WARNING,
        "Counters of another GPU",
        "The counter report and the timing run name different GPUs. Flop counts hold for both; bytes, occupancy and "
        "roofs may differ.",
        "Record both on one kind of GPU.",
    ),
    "counters-of-another-program": FindingText(
        ERROR,
        "Counters of another program",
        "No kernel name of the counter report occurs in the capture. The report was not used.",
        "Give the reports of this workload.",
    ),
    "counters-partial": FindingText(
        WARNING,
        "Some kernels have no counters",
        "Flop or DRAM counters are missing for part of the kernels, or read NaN.",
        "Sums cover the measured kernels and say which share of the time that is; collect the missing metrics.",
    ),
    "counters-report-cut": FindingText(
        WARNING,
        "The counter report is truncated",
        "The file ends inside a block, or states more results than could be read: the program was killed, or the copy "
        "was interrupted. The kernels before that point are used.",
        "Copy or record the report again.",
    ),
    "counters-set-failed": FindingText(
        WARNING,
        "A set of counters could not be recorded",
        "The run of one metric set under ncu failed. The other sets were recorded and are used. Quantities that need "
        "the missing set (flop, bytes or occupancy) are empty, not zero.",
        "Read the logs in the folder of that capture. The same run command with --resume tries it again.",
    ),
    "counters-several-in-one": FindingText(
        WARNING,
        "Results that are not single kernels",
        "Nsight Compute measured ranges or whole graphs (--replay-mode range, --graph-profiling graph); "
        "they cannot be joined to kernels.",
        "Record with --replay-mode kernel and --graph-profiling node.",
    ),
    "counters-unused": FindingText(
        INFO,
        "Counter results that fit no kernel",
        "These results belong to kernels that the timing run did not launch, or not as often.",
        "Nothing to do where the reports cover more than the capture.",
    ),
    "cpu-operators-as-kernels": FindingText(
        INFO,
        "Operators of the CPU stand in for kernels",
        "The trace is of a run without a GPU. The operators that do the work themselves (leaves, and those "
        "that spend most of their time outside the operators they call) are shown at the kernel level: "
        "their times are host times, with the framework's own cost included.",
        "Nothing to do. Record the run on a GPU to see kernels.",
    ),
    "cross-thread-ranges": FindingText(
        INFO,
        "Start/end ranges closed by another thread",
        "Such a range does not belong to a single thread, so it cannot nest.",
        "It is shown next to the tree, without kernels. Use push/pop, or close a range in the thread that opened it.",
    ),
    "diagnostic-event": FindingText(
        WARNING,
        "nsys reported a problem while recording",
        "The capture's DIAGNOSTIC_EVENT table holds warnings or errors about what this program reads: CUDA, NVTX or a "
        "library could not be traced, or not fully.",
        "Read the example; record again when it says that a feature was not available.",
    ),
    "diagnostic-loss": FindingText(
        WARNING,
        "nsys reported that events are missing",
        "The capture's DIAGNOSTIC_EVENT table says that events were lost, dropped or not collected, so that counts and "
        "times of the capture are too small.",
        "Record again, shorter or with less traced (--trace=cuda,nvtx, no sampling).",
    ),
    "diagnostic-note": FindingText(
        INFO,
        "nsys could not record something that is not used here",
        "CPU sampling, schedules, graphics and calls of the operating system need permissions or do not exist in every "
        "process. Nothing here is computed from them.",
        "Nothing to do. To record them, see: nsys status --environment",
    ),
    "domain-without-name": FindingText(
        INFO,
        "NVTX domains without a name",
        "The rows that name a domain are missing, as they are in captures cut to a window.",
        "Harmless: ranges are shown under domain-N; record the whole run to get names.",
    ),
    "duplicate-correlation": FindingText(
        INFO,
        "Correlation ids with several launch rows",
        "The export holds a driver row and a runtime row for one launch.",
        "Each kernel is still counted once: the runtime row is used.",
    ),
    "durations-under-counters": FindingText(
        WARNING,
        "Kernel durations were measured under the counters",
        "Only a counter report was given. ncu replays each kernel alone, so these durations differ from those in the "
        "program: without overlap and launch time, and with the clocks and caches that ncu sets.",
        "Record a timing run too and give both: xsp-post ingest run.sqlite metrics.ncu-rep",
    ),
    "export-empty": FindingText(
        INFO,
        "The report has a header and no rows",
        "No range of the capture launched device work on its own thread.",
        "Put ranges around what launches kernels (`with xsp_post.ranges(model):`), or look at the timeline.",
    ),
    "export-large": FindingText(
        WARNING,
        "An export may be too large for its viewer",
        "Browsers cannot open traces of several hundred megabytes.",
        "Shorten it with --limit N, or use the aggregated flame graph (`--to speedscope`).",
    ),
    "export-limited": FindingText(
        WARNING,
        "An export holds the first kernels only",
        "The capture has more kernels than --limit allows. The export holds the first ones in time, with their ranges "
        "and calls.",
        "Raise --limit, or export the tables (`--to parquet`), which are never cut.",
    ),
    "export-one-capture": FindingText(
        INFO,
        "An export shows one capture of several",
        "A timeline cannot show captures that ran at different times; the deepest one was taken.",
        "Choose with --capture N; `--to csv` and `--to parquet` hold all of them.",
    ),
    "hooks-change-program": FindingText(
        WARNING,
        "Layer ranges change what runs",
        "A module may run other code while hooks are attached to it: PyTorch's TransformerEncoderLayer, for example, "
        "then does not use its fused kernel. Levels M/L and M/L/G then measure another program than level M.",
        "Use the model latency of level M. The difference between the levels is not the cost of profiling. Choose "
        "layers inside which the code stays the same (--layer-depth, --layer-kind), or measure --levels M,MLG "
        "--compile.",
    ),
    "levels-one-process": FindingText(
        WARNING,
        "One process per level: nothing can be concluded about levels",
        "Processes of one program differ in clocks and memory layout, often by more than profiling costs; a single "
        "process does not show by how much.",
        "Measure several processes: xsp-post run --repeat 5.",
    ),
    "gpu-identity-assumed": FindingText(
        INFO,
        "Equal device numbers are taken as one GPU",
        "Several processes used a device of the same number, and the capture does not say which GPU that number means "
        "in each of them. With CUDA_VISIBLE_DEVICES these can be different GPUs; their busy time then counts once, "
        "not twice.",
        "Record with a newer nsys (2024.6 and later write TARGET_INFO_CUDA_DEVICE), or record each process into its "
        "own file.",
    ),
    "graph-recorded": FindingText(
        INFO,
        "A CUDA graph was recorded in this capture",
        "Between the begin and the end of a stream capture, launches are recorded into a graph; no kernel runs. The "
        "kernels run when the graph is launched.",
        "Record the program while it launches the graph; give this capture with --layers-from to name the graph's "
        "kernels.",
    ),
    "gpu-clock-fell": FindingText(
        WARNING,
        "The clock of a GPU fell while it worked",
        "Sampled clocks were at least 10 % below the highest one for 5 % of the busy time or more, after that had "
        "been reached: the GPU was throttled by its power or temperature limit, or its clock was changed.",
        "Times before and after the change cannot be compared. Lock the clock (nvidia-smi --lock-gpu-clocks), cool "
        "the GPU or raise its power limit, and compare executions by gpc_clock_hz in the table `gpu_samples`.",
    ),
    "gpu-samples-few": FindingText(
        INFO,
        "Layers with fewer than five samples of GPU metrics",
        "Their device work is short compared with the time between two samples. Means of so few samples are not "
        "reliable and are left empty.",
        "Sample more often (nsys profile --gpu-metrics-frequency=50000) or record more executions; kernels are "
        "described by counters: xsp-post run --ncu.",
    ),
    "graph-launches": FindingText(
        WARNING,
        "CUDA graph launches without their kernels",
        "nsys traced graphs as a whole (its default), so a graph is one opaque block of device time.",
        "Record with --cuda-graph-trace=node to see the kernels inside.",
    ),
    "implausible-times": FindingText(
        WARNING,
        "Implausible times",
        "Rows have no start, or a time more than 73 years from the start of the session: they are damaged.",
        "Such rows count without a duration, and such calls are left out. Export the report again.",
    ),
    "inferred-structure": FindingText(
        INFO,
        "Iterations and blocks are inferred, not recorded",
        "No range covers these kernels. Their launch sequence repeats; what repeats is shown as iterations "
        "and blocks, with a guess of the layer type.",
        HOW_TO_RECORD,
    ),
    "jaeger-model-span-misses-layers": FindingText(
        INFO,
        "The model span does not contain the layers",
        "The framework call that is traced as the model returns before the layers run. The span that the "
        "layers name as their parent is taken for the model execution.",
        "Nothing to do.",
    ),
    "jaeger-spans-left-out": FindingText(
        INFO,
        "Spans that are neither ranges, launches nor device work",
        "Profiler overhead records and spans without a usable time are not used.",
        "Nothing to do.",
    ),
    "executions-cover-little": FindingText(
        WARNING,
        "The model executions hold less than half of the device time",
        "The ranges taken as model executions leave out most of the work. Possible reasons: set-up with large copies, "
        "work outside every marker, or another range is the execution.",
        "Find the range that holds the work in the tree, and name it: --model-range REGEX. If the rest is set-up, "
        "nothing needs to be changed.",
    ),
    "executions-overlap": FindingText(
        INFO,
        "Model executions overlap on the device",
        "The host starts an execution before the device has finished the one before it. The latency of an execution, "
        "up to its last kernel, therefore includes work of other executions.",
        "For throughput look at the period (start to start), not at the latency; the GPU's busy share is that of all "
        "executions together.",
    ),
    "warmup-of-another-kind": FindingText(
        INFO,
        "Iterations marked as warm-up are of another kind than the measured ones",
        "Training steps are not a warm-up for forward passes, or the other way round. Both are measured, each as its "
        "own kind.",
        "Nothing to do.",
    ),
    "kernel-table-cut": FindingText(
        INFO,
        "The kernel tables hold the longest kernels only",
        "One execution has more launches than the limit of these tables (200,000 by default).",
        "All kernels are in the table `kernels`, and A10…A15 count all of them.",
    ),
    "kernels-differ-between-runs": FindingText(
        WARNING,
        "Runs launched different kernels",
        "Kernels were matched by layer, launch order and name. Some are in one run or iteration only. Possible "
        "reasons: autotuning, caching, or work that depends on data.",
        "Turn autotuning off (torch.backends.cudnn.benchmark = False), add warm-up, fix the inputs.",
    ),
    "kernels-outside-iterations": FindingText(
        INFO,
        "Kernels outside every model execution",
        "The capture has model executions, but some kernels were launched outside of them, for example in set-up, "
        "data loading, or warm-up of other phases.",
        "A8…A15 describe one model execution and leave these kernels out; the tree and the balance show them.",
    ),
    "kineto-categories-unknown": FindingText(
        WARNING,
        "Events of unknown categories",
        "The trace is of an accelerator or a PyTorch version that xsp-post does not know. Events of these categories "
        "may be device work. They are left out, and CPU operators are not used in their place.",
        "Report the categories that the example names, and which of them run on the device.",
    ),
    "kineto-kernels-not-recorded": FindingText(
        WARNING,
        "The trace has GPU calls but no kernels",
        "The profiler recorded launches but no device activity: it ran without ProfilerActivity.CUDA, or in"
        " its counter mode (cuda_profiler_range), whose times are not kernel times.",
        "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] and without CUPTI metrics.",
    ),
    "kineto-process-ambiguous": FindingText(
        WARNING,
        "Device work that could belong to several processes",
        "The trace was merged from several processes and their correlation ids collide. PyTorch traces do not record "
        "which process a kernel belongs to.",
        "Give the unmerged traces, one file per rank.",
    ),
    "kineto-rows-left-out": FindingText(
        INFO,
        "Events that are neither ranges, launches nor device work",
        "Python frames other than nn.Module calls, flow events, device-side copies of annotations, synchronisation "
        "markers and the profiler's own bookkeeping are not used.",
        "Nothing to do.",
    ),
    "kineto-time-unreadable": FindingText(
        WARNING,
        "Events without a readable time",
        "Their ts or dur is missing or is not a number. These events are left out.",
        "Record the trace again if the count is large.",
    ),
    "launches-unmatched": FindingText(
        WARNING,
        "Iterations launch different kernels",
        "Measured iterations launched kernels that the reference iteration does not have (or fewer of "
        "them): data-dependent work, autotuning, or a range that ends before its kernels are launched.",
        "A8…A15 describe the reference iteration. Record more warm-up, or look in `iterations` for the one that "
        "differs.",
    ),
    "launches-without-kernel": FindingText(
        WARNING,
        "Launches whose kernels are not in the capture",
        "A call that launches a kernel has no row of device work with its process and correlation id. The example "
        "gives their number, and the likely cause from their position in the recording. A share under 5 % is normal: "
        "these are calls at the edges of a recording.",
        "Let the program synchronise (torch.cuda.synchronize()) before the recording ends; close other profilers; with "
        "CUDA graphs record with --cuda-graph-trace=node.",
    ),
    "layer-sum-exceeds-model": FindingText(
        INFO,
        "Layer latencies sum to more than the model's latency",
        "Layers were measured one at a time (synchronised, M/L), which removes their overlap and adds the cost of "
        "measuring. The model was measured without profiling (M).",
        "Read layer latencies as shares, and use the latency at level M for the whole model.",
    ),
    "layers-of-kernel-run-only": FindingText(
        WARNING,
        "Layers without a latency",
        "Some layers of the run with kernels have no counterpart of the same path and call index in the run"
        " that measures layers: data-dependent control flow, or runs of different programs.",
        "Their kernels are shown with a layer that has no latency; check that all runs executed the same model.",
    ),
    "layers-overlap": FindingText(
        WARNING,
        "Layers overlap within one iteration",
        "Within one iteration the layers sum to more than the model range around them: layers nest, or run at the "
        "same time on several threads.",
        "Choose what is a layer with --layer-depth or --layer-kind, so that no layer holds another.",
    ),
    "layers-unmatched": FindingText(
        WARNING,
        "Layers seen at one level only",
        "Layers were matched by path and call index. Some were seen at one level only, because the program ran "
        "differently.",
        "Fix seed and inputs. Layers that run in some iterations only cannot be compared.",
    ),
    "memory-events-missing": FindingText(
        WARNING,
        "Allocations or releases are missing in the recording",
        "The capture states after each event how much memory is live. Between some events this changed by more than "
        "the event explains: threads that were not recorded allocated or released memory.",
        "Totals and the peak are those that the capture states. Memory that no event explains counts as `earlier` in "
        "the table `memory`. Start the profiler before other threads are made.",
    ),
    "memory-of-driver": FindingText(
        INFO,
        "Memory is what was asked of the CUDA driver",
        "The capture holds cudaMalloc and similar calls. The caching allocator of a framework asks for large segments "
        "and gives them to many layers in turn: a segment counts for the layer that was first to need it.",
        "For the memory of each layer record with torch.profiler and profile_memory=True.",
    ),
    "memory-owner-unknown": FindingText(
        INFO,
        "Allocations lie in no range",
        "No range of the allocating thread was open, or the thread is not known. The example says how much that was.",
        "They count as `none` in the table `memory`. Record Python frames (with_stack=True, with_modules=True) or put "
        "ranges around that code.",
    ),
    "memory-release-missing": FindingText(
        INFO,
        "Addresses were allocated again without a release between",
        "The release was not recorded. The first allocation is taken to end where the address is allocated again.",
        "Until then such memory counts as live in the table `memory`.",
    ),
    "memory-released-earlier": FindingText(
        INFO,
        "Memory was released that was allocated before the recording",
        "The allocation of these releases is not in the capture. The example says how much that was.",
        "Such memory counts as `earlier` in the table `memory`.",
    ),
    "model-self": FindingText(
        WARNING,
        "Much of the model's device time is in no layer",
        "More than a fifth of the device time of the model executions was launched in the model itself or in groups "
        "of layers, but in none of the ranges taken for layers. Tables by layer show it as [self].",
        "Name the ranges that are the layers with --layer-range or --layer-depth; or record ranges around all layers.",
    ),
    "module-loading": FindingText(
        WARNING,
        "Modules were loaded or compiled while recording",
        "CUDA loads the code of a kernel at its first launch. That time is part of the iterations in which it "
        "happened.",
        "Run more warm-up iterations before the capture range opens, or set CUDA_MODULE_LOADING=EAGER.",
    ),
    "negative-duration": FindingText(
        WARNING,
        "Device work or ranges that end before they start",
        "The rows are damaged or clipped.",
        "They keep the recorded duration. Export the capture again.",
    ),
    "negative-non-gpu": FindingText(
        INFO,
        "Layers whose kernels take longer than the layer",
        "The non-GPU latency of a layer is its latency minus that of its kernels (their sum or their union). The two "
        "come from different runs (M/L and M/L/G), kernels may overlap, and asynchronous kernels end after the range "
        "that launched them.",
        "The values are not changed. Compare by union instead of by sum, or record with serialised layers.",
    ),
    "no-kernels": FindingText(
        INFO,
        "No kernel was recorded",
        "CUDA was not traced, the program used no GPU, or the capture range never opened.",
        "Record with: nsys profile -t cuda,nvtx",
    ),
    "no-ranges": FindingText(
        INFO,
        "No range was recorded",
        "Neither the program nor the profiler marked models or layers.",
        HOW_TO_RECORD,
    ),
    "non-utf8-text": FindingText(
        INFO,
        "Text that is not UTF-8",
        "The profiled machine wrote texts in another code page.",
        "Unreadable bytes are shown as �; set a UTF-8 locale when recording.",
    ),
    "nothing-repeats": FindingText(
        INFO,
        "No ranges, and no iterations found in the kernels",
        "The launch sequence does not repeat regularly enough to infer iterations or layers, so none are inferred.",
        HOW_TO_RECORD,
    ),
    "one-iteration": FindingText(
        WARNING,
        "Only one iteration to measure",
        "With a single execution of the model, the variation between executions is not known.",
        "Record at least five iterations after the warm-up.",
    ),
    "only-warmup-iterations": FindingText(
        WARNING,
        "All iterations are warm-up",
        "Every model execution of the capture is marked as warm-up, so no measured execution is left.",
        "The last one is treated as measured. Record more iterations.",
    ),
    "open-ranges": FindingText(
        INFO,
        "Ranges without an end",
        "A range was still open when recording stopped (its end is NULL).",
        "Such a range is treated as ending with the last event, as in NVIDIA's reports. Close ranges inside the "
        "capture range.",
    ),
    "orphan-kernels": FindingText(
        WARNING,
        "Kernels without a launch row",
        "The API call that launched them lies outside the exported window, or API tracing was off.",
        "They are kept under [no launch record] and count for no layer. Export the whole recording (no --times); let "
        "the program synchronise (torch.cuda.synchronize()) before the recording begins.",
    ),
    "other-thread": FindingText(
        INFO,
        "Kernels launched by a thread without ranges",
        "PyTorch's autograd thread launches backward work; the range then open on another thread covers it.",
        "They count for that range, marked thread_time; record with emit_nvtx to match them by sequence number.",
    ),
    "outside-ranges": FindingText(
        INFO,
        "Kernels launched outside every range",
        "No NVTX range of any thread of the process covers the launch.",
        "They are kept under [unattributed]; put ranges around them: `with xsp_post.ranges(model):`.",
    ),
    "overhead-negative": FindingText(
        INFO,
        "A run with more profiling was faster",
        "The run with the deeper profiler was faster by more than chance explains. Clocks, temperature or other work "
        "on the machine changed between the runs.",
        "Lock the clocks, stop other work on the machine, repeat more often (--repeat).",
    ),
    "overhead-not-shown": FindingText(
        INFO,
        "Overhead below the measurement noise",
        "The confidence interval of the overhead includes zero: with this number of repeats it cannot be "
        "distinguished from noise.",
        "Repeat more often (--repeat) if it matters.",
    ),
    "partial-export": FindingText(
        WARNING,
        "The export covers only part of the recording",
        "nsys export ran with --tables, --times or a time shift, so rows outside are missing.",
        "Export without those options: nsys export -t sqlite REPORT.nsys-rep",
    ),
    "peaks-unknown": FindingText(
        WARNING,
        "The roofs of this device are not known",
        "The device is not in xsp-post's table of GPUs, and the capture does not state its multiprocessors,"
        " clock and bandwidth.",
        "Give its peaks in a file (--peaks), for example one written by `xsp-post doctor --measure-peaks`.",
    ),
    "too-few-kernels": FindingText(
        INFO,
        "Too few kernels to infer structure",
        "Fewer than 20 launches without a range: a repetition among them may be chance.",
        HOW_TO_RECORD,
    ),
    "unknown-schema": FindingText(
        WARNING,
        "Export schema newer than any known one",
        "The major schema version is above 3; columns may have changed meaning.",
        "Compare the totals with nsys stats, and report the version.",
    ),
    "twin-aligned": FindingText(
        INFO,
        "Ranges are carried over from another capture",
        "The launches of both captures were aligned by kernel name and shape. Aligned kernels got the ranges that "
        "their launch had in the other capture (--layers-from).",
        "Nothing to do if both captures are of the same program.",
    ),
    "twin-unaligned": FindingText(
        WARNING,
        "Kernels that the other capture does not have",
        "No sequence of launches of the capture given with --layers-from equals the launches around these kernels.",
        "They keep their place in the tree. Record the other capture with the same program, model and batch size.",
    ),
    "warmup-detected": FindingText(
        INFO,
        "The first iterations were much slower",
        "Leading iterations took over 1.3 times the median of the others, or loaded and compiled code.",
        "They are left out of every statistic; record more warm-up before the capture range to avoid them.",
    ),
    "work-forward-only": FindingText(
        WARNING,
        "Only the forward work of a training step is known",
        "The ranges of the layers state flop and bytes of the forward pass, but the time of the step includes "
        "backward and optimizer. Throughput, intensity and bound of layers and model are therefore left empty.",
        "Record the inputs of operators, which give the work of all phases: torch.profiler with record_shapes=True, "
        "or torch.autograd.profiler.emit_nvtx(record_shapes=True) under nsys. The table `phases` shows the forward "
        "part.",
    ),
    "work-from-shapes": FindingText(
        INFO,
        "Flop and bytes are counted from shapes",
        "The capture has no counters. The least work of each operator follows from the sizes and types of its inputs. "
        "Elementwise work is 0 flop; every tensor is moved once.",
        "docs/work.md has the formulas. Counters give the work that was really executed: xsp-post run --ncu.",
    ),
    "work-from-shapes-partial": FindingText(
        WARNING,
        "Flop and bytes are known for a part of the kernel time only",
        "Some kernels belong to no operator with recorded sizes, or to an operator without a formula. The table "
        "`operators` lists them with empty work. Below 90 % the model gets no verdict.",
        "Record sizes for the whole program (record_shapes=True); give the capture of the graph with --layers-from "
        "where a CUDA graph was replayed.",
    ),
}
