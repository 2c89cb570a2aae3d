"""Which tables and columns an nsys SQLite export of each age has; the only place the test writers know it.

One line per table. A column is ``name``, then ``!`` NOT NULL, ``:TYPE`` (INTEGER unless said), ``*`` primary
key, ``@version`` the first schema that has it, ``<version`` the first that has it no longer. The same two
marks after a table's name say when the table exists. Unversioned exports (2019–2021) are version 0.
`tests/test_builders.py` holds the sets against real captures where those are at hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

UNVERSIONED = "unversioned"

# schema version -> nsys version that wrote it (as far as real files tell)
PRODUCTS = {
    "2.9.1": "2022.1.3.3",
    "2.10.0": "2022.3.4.34",
    "3.0.0": "2022.4.2.1",
    "3.1.2": "2023.1.2.43",
    "3.4.0": "2023.3.1.92",
    "3.6.0": "2023.4.1.97",
    "3.13.2": "2024.5.1.113",
    "3.16.1": "2024.6.2.225",
    "3.17.2": "2025.1.3.140",
    "3.20.3": "2025.3.2.367",
    "3.24.0": "2025.5.2.266",
    "3.24.14": "2026.1.1.204",
    "3.25.0": "2026.2.1.210",
    "3.28.1": "2026.4.1.1",
}

_DEFINITIONS = """
StringIds : id!* value!:TEXT
NVTX_EVENTS : start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId
  uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId jsonText:TEXT
  binaryData:TEXT@3.16.1 eventId*@3.28.1
NVTX_PAYLOAD_SCHEMA_ENTRIES @3.16.1 : domainId! schemaId! idx! flags type name:TEXT description:TEXT arrayOrUnionDetail
  offset
CUPTI_ACTIVITY_KIND_KERNEL : start! end! deviceId! contextId! greenContextId@3.13.2 streamId! correlationId
  globalPid demangledName! shortName! mangledName@2.9.1 launchType cacheConfig registersPerThread!
  gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory!
  localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig
  qmdBulkReleaseDone@3.24.0 qmdPreexitDone@3.24.0 qmdLastCtaDone@3.24.0 graphId@3.24.0 clusterX@3.24.0
  clusterY@3.24.0 clusterZ@3.24.0 clusterSchedulingPolicy@3.24.0 maxPotentialClusterSize@3.24.0
  maxActiveClusters@3.24.0 sharedMemoryRequestedPercentage@3.24.14 tensorSizeMinusOneElements!:TEXT@3.25.0
CUPTI_ACTIVITY_KIND_RUNTIME : start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId
CUPTI_ACTIVITY_KIND_MEMCPY : start! end! deviceId! contextId! greenContextId@3.13.2 streamId! correlationId
  globalPid bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId
  dstContextId migrationCause graphNodeId virtualAddress@2.9.1 copyCount@3.17.2
CUPTI_ACTIVITY_KIND_MEMSET : start! end! deviceId! contextId! greenContextId@3.16.1 streamId! correlationId
  globalPid value! bytes! graphNodeId memKind
CUPTI_ACTIVITY_KIND_SYNCHRONIZATION : start! end! deviceId! contextId! greenContextId@3.7.4 streamId!
  correlationId globalPid deprecatedSyncType@3.17.1 syncType! eventId! eventSyncId@3.17.1
CUPTI_ACTIVITY_KIND_CUDA_EVENT : timestamp@3.24.0 deviceId! contextId! greenContextId@3.16.1 streamId!
  correlationId globalPid eventId! eventSyncId@3.17.2
CUPTI_ACTIVITY_KIND_GRAPH_TRACE : start! end! deviceId! contextId! greenContextId@3.13.2 streamId!
  correlationId globalPid graphId! graphExecId!
CUPTI_ACTIVITY_KIND_OVERHEAD @3.24.0 : start! end! eventClass! globalTid correlationId nameId overheadType!
CUDA_GRAPH_EVENTS <3.0.0 : start! end! eventClass! globalTid nameId! graphNodeId! originalGraphNodeId
CUDA_GRAPH_EVENTS @3.0.0 : start! end! eventClass! globalTid nameId! graphId originalGraphId graphExecId
CUDA_GRAPH_NODE_EVENTS @3.0.0 : start! end! eventClass! globalTid nameId! graphNodeId! originalGraphNodeId
CUDNN_EVENTS : start! end! eventClass! globalTid nameId!
CUBLAS_EVENTS : start! end! eventClass! globalTid nameId!
PROFILER_OVERHEAD : start! end! globalTid nameId! returnValue!<3.24.0 overheadType!@3.24.0
OSRT_API : start! end! eventClass! globalTid correlationId<2.9.1 nameId! returnValue! nestingLevel callchainId!
  argumentsId!@3.23.3
SCHED_EVENTS : start! cpu! isSchedIn! globalTid threadState@3.13.2 threadBlock@3.13.2
COMPOSITE_EVENTS : id!* start! cpu threadState globalTid cpuCycles!
SAMPLING_CALLCHAINS : id! symbol! module! kernelMode thumbCode unresolved specialEntry originalIP unwindMethod
  stackDepth!
DIAGNOSTIC_EVENT @3.13.2 : timestamp! timestampType! source! severity! text!:TEXT globalPid
PROCESSES @2.9.1 : globalPid pid name:TEXT
ThreadNames : nameId! priority globalTid
ANALYSIS_DETAILS @2.9.1 : globalVid! duration! startTime! stopTime!
TARGET_INFO_SESSION_START_TIME : utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs@3.24.7
TARGET_INFO_SYSTEM_ENV <3.1.0 : globalVid! devStateName!:TEXT name!:TEXT nameEnum! value!:TEXT
TARGET_INFO_SYSTEM_ENV @3.1.0 : globalVid devStateName!:TEXT name!:TEXT nameEnum! value!:TEXT
TARGET_INFO_GPU : vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth
  clockRate smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath:TEXT ctrlDevPath:TEXT revision
  nodeMask constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm
  maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock maxBlockDimX
  maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ computeMajor computeMinor smMajor smMinor
TARGET_INFO_CUDA_DEVICE @3.17.1 : gpuId cudaId! pid! uuid:TEXT@3.24.14 numMultiprocessors@3.24.14
TARGET_INFO_CUDA_NULL_STREAM <3.5.0 : streamId! hwId! vmId! processId! deviceId! contextId!
TARGET_INFO_CUDA_CONTEXT_INFO @3.7.2 : nullStreamId! hwId! vmId! processId! deviceId! contextId!
  parentContextId isGreenContext numMultiprocessors@3.24.14 numTpcs@3.25.0 tpcMask:TEXT@3.25.0
  workqueueResourceId@3.25.0 workqueueConcurrencyLimit@3.25.0 workqueueSharingScope@3.25.0
TARGET_INFO_CUDA_STREAM : streamId! hwId! vmId! processId! contextId! priority! flag!
EXPORT_META_DATA @2.9.1<3.4.0 : name!:TEXT value:TEXT
META_DATA_EXPORT @3.4.0 : name!:TEXT value:TEXT
META_DATA_CAPTURE @3.4.0 : name!:TEXT value:TEXT
"""

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"

NO_ID = 4294967295  # nsys's "none" in 32 bits

# TARGET_INFO_GPU of an A100 40 GB (NVIDIA's data sheet: 108 SMs, 1.41 GHz boost, 1555 GB/s)
A100: dict[str, Any] = {
    "name": "NVIDIA A100-SXM4-40GB",
    "busLocation": "0000:07:00.0",
    "isDiscrete": 1,
    "l2CacheSize": 41943040,
    "totalMemory": 42298834944,
    "memoryBandwidth": 1555200000000,
    "clockRate": 1410000000,
    "smCount": 108,
    "pwGpuId": 0,
    "luid": 0,
    "chipName": "GA100",
    "cuDevice": 0,
    "revision": 161,
    "nodeMask": 0,
    "constantMemory": 65536,
    "maxIPC": 4,
    "maxRegistersPerBlock": 65536,
    "maxShmemPerBlock": 49152,
    "maxShmemPerBlockOptin": 166912,
    "maxShmemPerSm": 167936,
    "maxRegistersPerSm": 65536,
    "threadsPerWarp": 32,
    "asyncEngines": 3,
    "maxWarpsPerSm": 64,
    "maxBlocksPerSm": 32,
    "maxThreadsPerBlock": 1024,
    "maxBlockDimX": 1024,
    "maxBlockDimY": 1024,
    "maxBlockDimZ": 64,
    "maxGridDimX": 2147483647,
    "maxGridDimY": 65535,
    "maxGridDimZ": 65535,
    "computeMajor": 8,
    "computeMinor": 0,
    "smMajor": 8,
    "smMinor": 0,
}

_DEVICE = {"deviceId": 0, "contextId": 1, "streamId": 7, "greenContextId": 0}
DEFAULTS: dict[str, dict[str, Any]] = {
    KERNEL: _DEVICE
    | {
        "launchType": 1,
        "cacheConfig": 0,
        "registersPerThread": 32,
        "gridX": 80,
        "gridY": 1,
        "gridZ": 1,
        "blockX": 128,
        "blockY": 1,
        "blockZ": 1,
        "sharedMemoryExecuted": 32768,
        "sharedMemoryLimitConfig": 0,
        "clusterX": 0,
        "clusterY": 0,
        "clusterZ": 0,
        "tensorSizeMinusOneElements": "[]",
    },
    MEMCPY: _DEVICE | {"copyKind": 1, "srcKind": 0, "dstKind": 2, "copyCount": 1},
    MEMSET: _DEVICE | {"memKind": 2},
    GRAPH: _DEVICE | {"graphId": 1, "graphExecId": 1},
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _DEVICE | {"syncType": 3, "eventId": NO_ID, "eventSyncId": NO_ID},
    "TARGET_INFO_CUDA_STREAM": {"contextId": 1, "flag": 2},
    "TARGET_INFO_SYSTEM_ENV": {"devStateName": "Local (CLI)"},
    "ThreadNames": {"priority": 20},
}

_TABLE = re.compile(r"(?P<name>\w+)\s*(?:@(?P<since>[\d.]+))?(?:<(?P<until>[\d.]+))?$")
_COLUMN = re.compile(
    r"(?P<name>\w+)(?P<required>!)?(?::(?P<type>\w+))?(?P<key>\*)?(?:@(?P<since>[\d.]+))?(?:<(?P<until>[\d.]+))?$"
)


@dataclass(frozen=True)
class ColumnDdl:
    """One column of one table at one schema version."""

    name: str
    type: str = "INTEGER"
    is_required: bool = False
    is_key: bool = False

    @property
    def sql(self) -> str:
        parts = [quoted(self.name), self.type]
        if self.is_required:
            parts.append("NOT NULL")
        if self.is_key:
            parts.append("PRIMARY KEY")
        return " ".join(parts)


def quoted(name: str) -> str:
    """An SQL identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def version_key(schema: str) -> tuple[int, ...]:
    """``3.25.0`` → (3, 25, 0); unversioned exports come before all others."""
    return (0,) if schema == UNVERSIONED else tuple(int(part) for part in schema.split("."))


def _holds(match: re.Match[str], version: tuple[int, ...]) -> bool:
    since, until = match["since"], match["until"]
    return (not since or version >= version_key(since)) and (not until or version < version_key(until))


def tables_of(schema: str) -> dict[str, list[ColumnDdl]]:
    """Table name → its columns in order, for an export of that schema version."""
    version = version_key(schema)
    tables: dict[str, list[ColumnDdl]] = {}
    text = re.sub(r"\n  +", " ", _DEFINITIONS.strip())
    for line in text.splitlines():
        head, _, body = line.partition(" : ")
        table = _TABLE.match(head.strip())
        assert table, head
        if not _holds(table, version):
            continue
        columns = []
        for word in body.split():
            column = _COLUMN.match(word)
            assert column, word
            if _holds(column, version):
                kind = column["type"] or "INTEGER"
                columns.append(ColumnDdl(column["name"], kind, bool(column["required"]), bool(column["key"])))
        tables[table["name"]] = columns
    return tables


def create_sql(table: str, columns: list[ColumnDdl]) -> str:
    """The CREATE TABLE statement of a table."""
    return f"CREATE TABLE {quoted(table)} ({', '.join(column.sql for column in columns)})"
