"""Hooks of make schemathesis: rules of the API that an OpenAPI document cannot express. They change generated requests, and no check."""

import schemathesis

# The parameters of a list in each of its modes. The first mode whose parameter is present decides.
FILTER = {"partition", "namespace", "ns", "name_prefix"}
MODES = {
    "watch": FILTER | {"watch", "before", "bookmark", "timeout"},
    "changes": {"partition", "namespace", "ns", "changes", "after", "until"},
    "diff": FILTER | {"diff", "from", "to"},
    None: FILTER | {"consistent", "RequireConsistent", "limit", "at"},
}
# Tokens are made by the server.
TOKENS = {"cursor", "continue"}


def is_list(case):
    return case.operation.definition.raw["operationId"].endswith(".list")


def adapt_query(case):
    query = {name: value for name, value in (case.query or {}).items() if name not in TOKENS}
    if "name_prefix" in query:
        query["name_prefix"] = query["name_prefix"].lower()  # also letters that are not ASCII
    if case.method.upper() == "DELETE":
        query = {name: value for name, value in query.items() if name not in ("uid", "version")}  # another uid: nothing is deleted
    if "namespace" in query:
        query.pop("ns", None)  # the same
    if is_list(case):
        mode = next((name for name in MODES if name in query), None)
        query = {name: value for name, value in query.items() if name in MODES[mode]}
        if mode == "watch":
            query["timeout"] = 1  # a watch has no end otherwise
        if mode == "diff":
            query.setdefault("from", 1)
            query.pop("to", None)  # it must not be less than from
    if "after" in query:
        query.pop("until", None)  # it must not be less than after
    if query.get("depth", 1) not in (1, "1"):
        query.pop("limit", None)  # a tree has no pages
    case.query = query


def adapt_path(case):
    path = case.path_parameters or {}
    if "version" in path:
        path["version"] = "v1"  # a resource is read in the version in which it was written
    for name in ("group", "kind"):
        if path.get(name) in ("*", "%2A"):
            path[name] = "Thing" if name == "kind" else "demo"  # only with a wildcard as the version
    if "kind" in path:
        path["kind"] = path["kind"][:1].upper() + path["kind"][1:]  # unless another case is stored
    if path.get("kind") == "Tombstone":
        path["kind"] = "Stone"  # tombstones belong to the service


def without_any(value):
    """Empties each google.protobuf.Any in a value: it must be a message that the server knows."""
    if isinstance(value, dict):
        return {} if "@type" in value else {name: without_any(v) for name, v in value.items()}
    if isinstance(value, list):
        return [without_any(v) for v in value]
    return value


def adapt_body(case):
    if not isinstance(case.body, dict) or not case.operation.definition.raw["operationId"].endswith(".write"):
        return
    # The id must agree with the path, the owner must exist, and a status may only be repeated.
    body = {name: value for name, value in case.body.items() if name not in ("id", "owner", "status")}
    if "version" in (case.query or {}):
        body.pop("version", None)  # the same
    data = body.get("data")
    if isinstance(data, dict):
        data = body["data"] = {name: without_any(value) for name, value in data.items()}
    if isinstance(data, dict) and "@type" in data:
        if "@value" not in data:
            del data["@type"]  # it must be a message that the server knows
        elif "{kind}" not in case.operation.path:
            body["data"] = {}  # the bytes must be a message of the type
    case.body = body


def has_null(value):
    if isinstance(value, dict):
        return any(has_null(v) for v in value.values())
    if isinstance(value, list):
        return any(has_null(v) for v in value)
    return value is None


@schemathesis.hook
def filter_case(context, case):
    """In protojson null is the same as an absent field, so that such a body is not invalid."""
    return case.meta is None or case.meta.generation.mode.is_positive or not has_null(case.body)


@schemathesis.hook
def before_call(context, case, **kwargs):
    if case.meta is not None and case.meta.generation.mode.is_positive:
        adapt_path(case)
        adapt_query(case)
        adapt_body(case)
    elif case.query and "watch" in case.query:
        case.query.setdefault("timeout", 1)
