"""The kinds of edges in the table ``dependencies``."""

DEVICE_WAIT, STREAM_WAIT, EVENT_WAIT, EVENT_ORDER = "device_wait", "stream_wait", "event_wait", "event_order"
RESULT_WAIT = "result_wait"  # of a thread for work of another one: it goes on with what that gave
SYNCHRONISATIONS = (DEVICE_WAIT, STREAM_WAIT, EVENT_WAIT)  # of the host; an event_order is a stream's
WAITS = (*SYNCHRONISATIONS, RESULT_WAIT)  # from EVENT_WAIT on they are for single work, before it for a stream's
ALLOCATION = "allocation"
GRAPH_ORDER = "graph_order"  # of one stream for another, within a CUDA graph
HOST_FUNCTION = "host_function"  # that a stream calls between two operations
CALLS = (*WAITS, ALLOCATION)  # of the host, that launch nothing
