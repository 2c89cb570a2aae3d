"""How each irregular convention of range texts (dicts, TensorRT, XLA, FSDP, Megatron) is read: one small function
each, called once per different text."""

import ast
import json
import re
from typing import Any, NamedTuple

from xsp_post.names.compiled import FUSED, symbol_of

_DICT_LIMIT = 100_000  # characters; a longer dict text is read by patterns


class Parsed(NamedTuple):
    """What a text says; the defaults mean: nothing."""

    dialect: str
    folded_name: str
    base_name: str
    role: str = ""
    layer_type: str = ""
    module_path: str = ""
    shape_text: str = ""
    phase: str = ""
    step_index: int = -1
    sequence: int = -1
    op_id: int = -1
    is_backward: bool = False


def last_word(path: str) -> str:
    """Last part of a dotted path that is not a number: `layers.17` → `layers`, `layers.17.mlp` → `mlp`."""
    words = [word for word in path.split(".") if word and not word.isdigit()]
    return words[-1] if words else path


# --- dict texts ------------------------------------------------------------------------------------------

_DICT_FIELD = re.compile(r"""['"](Module|mod|op|name|layer)['"]\s*:\s*['"]([^'"]*)['"]""")


def parse_dict(text: str) -> Parsed:
    """A Python or JSON dict: SGLang/vLLM/TensorRT-LLM layer markers (`Module`, `Inputs`), PyProf and DLProf
    (`mod`, `op`, `args`, `traceMarker`, `funcStack`, `strRepr`, `seq`)."""
    fields = _literal(text)
    path = str(fields.get("Module") or "")
    sequence, op_id = _integer(fields.get("seq", fields.get("seq_id"))), _integer(fields.get("op_id"))
    if path:
        path = re.sub(r" \((?:input|output)\)$", "", path)
        word = last_word(path)
        shape = fields.get("Inputs", fields.get("Outputs", ""))
        return Parsed("dict", path, word, "module", word, path, _text(shape), "", -1, sequence, op_id)
    module, operator = str(fields.get("mod") or ""), str(fields.get("op") or "")
    if module or operator:
        name = f"{module}.{operator}" if module and operator else module or operator
        kind = operator or module
        # `strRepr` is the extra_repr() of a module: its parameters, the same in every step
        extra = str(fields.get("strRepr") or "")
        folded = f"{name}({extra})" if extra else name
        role = "operator" if operator else "module"
        return Parsed("dict", folded, name, role, kind, "", _shapes(fields), "", -1, sequence, op_id)
    if "traceMarker" in fields:
        frames = fields["traceMarker"]
        frame = str(frames[-1]) if isinstance(frames, (list, tuple)) and frames else ""
        path = str(fields.get("funcStack") or "")
        name = path.rsplit("/", 1)[-1] if path else frame
        return Parsed("dict", f"traceMarker {path or frame}".strip(), name or "traceMarker", "mark", "", path)
    for key in ("name", "layer", "Name", "Layer", "fn", "function"):
        if fields.get(key):
            name = str(fields[key])
            return Parsed("dict", name, name, "", name, "", _shapes(fields), "", -1, sequence, op_id)
    return Parsed("dict", text, "dict", sequence=sequence, op_id=op_id)


def _literal(text: str) -> dict[str, Any]:
    """The dict a text spells, {} for none; a text cut off by its writer is read field by field."""
    if len(text) <= _DICT_LIMIT:
        for read in (ast.literal_eval, json.loads):
            try:
                value = read(text.strip())
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            if isinstance(value, dict):
                return value
    found: dict[str, Any] = {}
    for key, value in _DICT_FIELD.findall(text[:_DICT_LIMIT]):
        found.setdefault(key, value)
    return found


def _integer(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and -1 <= value < 2**63 else -1


def _text(value: Any) -> str:
    return str(value) if value not in (None, "", [], {}) else ""


def _shapes(fields: dict[str, Any]) -> str:
    """Shapes of PyProf's `args` (each a dict with `type` tensor and `shape`), or of a `shape` field."""
    args = fields.get("args")
    if isinstance(args, (list, tuple)):
        shapes = [list(a["shape"]) for a in args if isinstance(a, dict) and isinstance(a.get("shape"), (list, tuple))]
        return _text(shapes)
    for key in ("shape", "shapes", "sizes", "input_shapes"):
        if key in fields:
            return _text(fields[key])
    return ""


# --- XLA -------------------------------------------------------------------------------------------------

_XLA = re.compile(r"^([^#]*)#(\w+=.*)#$", re.DOTALL)
_XLA_FIELD = re.compile(r"(?:^|,)(hlo_op|hlo_module|module|program_id|step_num|run_id|_r)=([^,]*)(?=,|$)")
_XLA_CHANGING = re.compile(r",?(?:step_num|run_id|_r|correlation_id)=[^,]*(?=,|$)")
_XLA_NAME = re.compile(r"(?:^|,)name=(.*?)(?=,(?:hlo_op|hlo_module|module|program_id|step_num)=|$)", re.DOTALL)


def parse_xla(text: str) -> Parsed:
    """`Thunk:#name=jit(f)/…/dot_general[…],hlo_op=fusion.3#`, `XlaModule:#hlo_module=…,program_id=3#`,
    JAX's `train#step_num=5,_r=1#`."""
    match = _XLA.match(text)
    if match is None:
        return Parsed("xla", text, text)
    prefix, inside = match.groups()
    fields = dict(_XLA_FIELD.findall(inside))
    name = _XLA_NAME.search(inside)
    path = name.group(1) if name else ""
    base = prefix.rstrip(":") or "xla"
    kind = base.rsplit(":", 1)[-1]
    kept = _XLA_CHANGING.sub("", inside).lstrip(",")
    folded = f"{prefix}#{kept}#" if kept else prefix
    step = _integer(fields.get("step_num", ""))
    backward = "transpose(jvp(" in path
    if step >= 0:
        return Parsed("xla", folded, base, "iteration", "", "", step_index=step)
    operation = re.sub(r"\.\d+$", "", fields.get("hlo_op", ""))
    if kind == "XlaModule":
        module = fields.get("hlo_module", "")
        return Parsed("xla", folded, base, "model", module, module)
    role = "layer" if kind == "Thunk" and operation else ""
    layer_type = operation or (path if kind == "XlaPass" else "") or kind
    phase = "backward" if backward else "forward" if "jvp(" in path else ""
    return Parsed("xla", folded, base, role, layer_type, path, phase=phase, is_backward=backward)


# --- TensorRT --------------------------------------------------------------------------------------------

_TRT_PATH = re.compile(r"(/?[\w.\-]+(?:/[\w.\-]+)*)")
_TRT_UNNAMED = re.compile(r"\(Unnamed Layer\* \d+\) \[([^\]]*)\]")
_TRT_TAIL = re.compile(r"_\d+$")


def parse_tensorrt(text: str) -> Parsed:
    """A TensorRT layer: ONNX paths joined by `+` (fused) and `||` (side by side), `PWN(…)` (pointwise),
    `Reformatting CopyNode for …`, `{ForeignNode[…]}`. Type: the operators, `Conv+Relu`."""
    if text.startswith("Reformatting CopyNode"):
        target = text.rsplit(" to ", 1)[-1]
        return Parsed("tensorrt", text, text, "layer", "Reformat", _common_path([target]))
    if text.startswith("{ForeignNode["):
        inside = text.removeprefix("{ForeignNode[").split("...")[0].rstrip("]}")
        return Parsed("tensorrt", text, text, "layer", "ForeignNode", _common_path([inside]))
    if text.endswith(" copy"):
        return Parsed("tensorrt", text, text, "layer", "Copy", _common_path([text[:-5]]))
    branches, paths = [], []
    for branch in text.split(" || "):
        kinds = []
        for part in branch.split(" + "):
            unnamed = _TRT_UNNAMED.findall(part)
            if unnamed:
                kinds += unnamed
                continue
            for path in _TRT_PATH.findall(part):
                if path == "PWN":
                    continue
                paths.append(path)
                kinds.append(_TRT_TAIL.sub("", path.rsplit("/", 1)[-1]))
        branches.append("+".join(kinds))
    kind = " || ".join(dict.fromkeys(branch for branch in branches if branch)) or text
    return Parsed("tensorrt", text, text, "layer", kind, _common_path(paths))


def _common_path(paths: list[str]) -> str:
    """Folder that all operator paths share."""
    folders = [path.split("/")[:-1] for path in paths if "/" in path]
    if not folders:
        return ""
    common = []
    for parts in zip(*folders):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return "/".join(common)


# --- FSDP, Megatron, torch.compile -----------------------------------------------------------------------

_WRAPPERS = re.compile(r"(?:^|\.)(?:_checkpoint_wrapped_module|_fsdp_wrapped_module|_orig_mod)(?=\.|$)")
_FSDP = re.compile(r"^([^( ]+)(?: \((.*)\))?$", re.DOTALL)
_CLASS = re.compile(r"(?:^|\.)(_?[A-Z]\w*)(?:\.(.*))?$")


def parse_fsdp(text: str) -> Parsed:
    """`FSDP::pre_forward (blocks.10._checkpoint_wrapped_module)`; the wrappers of checkpointing and FSDP are
    no part of the module's path."""
    match = _FSDP.match(text)
    base, inside = match.groups() if match else (text, None)
    path = _WRAPPERS.sub("", inside or "").strip(".")
    folded = f"{base} ({path})" if path else base
    phase = "backward" if "backward" in base else "forward" if "forward" in base else ""
    return Parsed("fsdp", folded, base, "module", base, path, phase=phase, is_backward=phase == "backward")


def parse_megatron(text: str) -> Parsed:
    """`megatron.core.transformer.transformer_layer.TransformerLayer._forward_mlp.mlp`,
    `transformer_engine._Linear.forward.gemm`."""
    match = _CLASS.search(text)
    kind, rest = (match.group(1).lstrip("_"), match.group(2) or "") if match else (last_word(text), "")
    phase = "backward" if "backward" in rest else "forward" if "forward" in rest else ""
    return Parsed("megatron", text, rest or kind, "module", kind, "", phase=phase, is_backward=phase == "backward")


def parse_torch_compile(text: str) -> Parsed:
    """`Torch-Compiled Region: 0/0`, `## Call CompiledFxGraph <hash> ##`, fused kernels."""
    if text.startswith("## Call CompiledFxGraph"):
        return Parsed("torch_compile", text, "CompiledFxGraph", "module", "CompiledFxGraph")
    if symbol_of(text).startswith(FUSED):  # named after its operations: "backward" in it is no phase
        return Parsed("torch_compile", text, text, "operator", re.sub(r"_\d+$", "", text))
    base = text.split(":", 1)[0]
    role = "module" if base.startswith("Torch-Compiled") else "operator" if base.startswith("Compiled") else ""
    phase = "backward" if "Backward" in base else "forward" if base == "CompiledFunction" else ""
    return Parsed("torch_compile", text, base, role, base, phase=phase, is_backward=phase == "backward")
