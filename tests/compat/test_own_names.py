"""The classes of a program for the SDK may use every name that the SDK's classes do not have."""

from __future__ import annotations

from typing import Any

from headrace.compat.holoscan.core import Application, Condition, Fragment, Operator, Resource, Subgraph

BASES = (Operator, Application, Fragment, Subgraph, Condition, Resource)
# The names of the SDK's classes that headrace's classes document, too, or have in its place.
OF_PARTS = {
    "args",
    "description",
    "fragment",
    "id",
    "initialize",
    "name",
    "service",
    "setup",
    "spec",
    "add_arg",
}
OF_FRAGMENTS = {
    *("add_data_logger", "add_default_green_context_pool", "add_flow", "add_operator", "add_subgraph"),
    *("application", "compose", "compose_graph", "config", "config_keys", "data_flow_tracker"),
    *("enable_metadata", "executor", "fragment", "from_config", "get_default_green_context_pool", "graph"),
    *("is_metadata_enabled", "kwargs", "make_thread_pool", "metadata_policy", "name", "register_service"),
    *("run", "run_async", "scheduler", "service", "set_dynamic_flows", "shutdown_async_executor", "start_op"),
    *("stop_execution", "subgraphs", "track"),
}
OF_THE_SDK: dict[Any, set[str]] = {
    Operator: OF_PARTS
    | {
        *("INPUT_EXEC_PORT_NAME", "OUTPUT_EXEC_PORT_NAME", "OperatorType", "add_dynamic_flow"),
        *("async_condition", "compute", "conditions", "enable_metadata", "execution_context"),
        *("find_all_flow_info", "find_flow_info", "get_data_flow_tracking_label", "is_metadata_enabled"),
        *("metadata", "metadata_policy", "next_flows", "operator_type", "queue_policy", "receiver"),
        *("resource", "resources", "start", "stop", "stop_execution", "transmitter"),
    },
    Fragment: OF_FRAGMENTS,
    Application: OF_FRAGMENTS
    | {"add_fragment", "argv", "description", "fragment_graph", "options", "track_distributed", "version"},
    Subgraph: OF_FRAGMENTS
    | {
        *("add_input_exec_interface_port", "add_input_interface_port", "add_interface_port"),
        *("add_output_exec_interface_port", "add_output_interface_port", "exec_interface_ports"),
        *("get_exec_interface_operator_port", "get_interface_operator_port", "instance_name"),
        *("interface_port_names", "interface_ports", "is_composed", "nested_subgraphs", "operators"),
        "set_composed",
    },
    Condition: OF_PARTS
    | {
        *("ConditionComponentType", "check", "condition_type", "notify_scheduler", "on_execute"),
        *("receiver", "transmitter", "update_state"),
    },
    Resource: OF_PARTS | {"ResourceType", "resource_type"},
}
