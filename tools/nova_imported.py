"""Print the options of Nova and its libraries as the interpreter's own Nova has them, one JSON object a line.

Runs on Nova's Python: ``python nova_imported.py < nova-config-generator.conf``. ``tools/nova-tables`` takes from the
output the values that the source computes, and a test compares the tables with it.
"""

import contextlib
import importlib
import json
import re
import sys

from oslo_config import cfg, types

MODULES = (
    "nova.conf",
    "nova.privsep",
    "os_brick.privileged",
    "vif_plug_ovs.privsep",
    "vif_plug_linux_bridge.privsep",
    "nova.rpc",
    "nova.policy",
    "nova.service",
    "nova.limit.placement",
    "nova.monkey_patch",
    "oslo_reports.opts",
    "oslo_service.wsgi",
    "oslo_limit.opts",
    "placement.conf",
)
KINDS = {
    types.String: "String",
    types.MultiString: "String",
    types.Boolean: "Boolean",
    types.Integer: "Integer",
    types.Port: "Port",
    types.Float: "Float",
    types.List: "List",
    types.Dict: "Dict",
    types.IPAddress: "IPAddress",
    types.Hostname: "Hostname",
    types.HostAddress: "HostAddress",
    types.HostDomain: "HostDomain",
    types.URI: "URI",
    types.Range: "Range",
}


def kind(type_):
    """A type as the tables write it: its class and limits."""
    name = KINDS.get(type(type_))
    if name is None:
        return {"type": "Unknown"}
    entry = {"type": name}
    for key, attribute in (
        ("min", "min"),
        ("max", "max"),
        ("max_length", "max_length"),
        ("ignore_case", "ignore_case"),
    ):
        value = getattr(type_, attribute, None)
        empty = value is None or value is False or (key == "max_length" and value == 0)
        if not empty and not (name == "Port" and key in ("min", "max")):
            entry[key] = value
    choices = getattr(type_, "choices", None)
    if choices is not None:
        entry["choices"] = list(choices)
    pattern = getattr(type_, "regex", None)
    if pattern is not None and name == "String":
        entry["pattern"] = pattern.pattern
        if pattern.flags & re.IGNORECASE:
            entry["ignore_case"] = True
    if getattr(type_, "schemes", None):
        entry["schemes"] = list(type_.schemes)
    item = getattr(type_, "item_type", None) or (getattr(type_, "value_type", None) if name == "Dict" else None)
    if item is not None:
        inner = kind(item)
        if inner != {"type": "String"}:
            entry["item"] = inner
    if getattr(type_, "bounds", False):
        entry["bounds"] = True
    return entry


def plain(value):
    """A value as JSON; null if it is computed."""
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value


def option(group, opt, library):
    """An option as the tables write it."""
    entry = {"group": group, "name": opt.dest, **kind(opt.type), "default": plain(opt.default)}
    if opt.multi:
        entry["multi"] = True
    old = [
        (name.name or opt.dest) if (name.group or group) == group else "%s/%s" % (name.group, name.name or opt.dest)
        for name in opt.deprecated_opts
    ]
    if old:
        entry["old"] = list(dict.fromkeys(old))
    for key, attribute in (("secret", "secret"), ("removal", "deprecated_for_removal"), ("required", "required")):
        if getattr(opt, attribute, False):
            entry[key] = True
    entry["library"] = library
    return entry


def listed(namespaces):
    """The options of entry points of ``oslo.config.opts``: namespace, group, option."""
    import importlib.metadata as metadata

    points = metadata.entry_points()
    points = points.select(group="oslo.config.opts") if hasattr(points, "select") else points["oslo.config.opts"]
    for point in points:
        if point.name in namespaces:
            for group, opts in point.load()():
                for opt in opts:
                    yield point.name, getattr(group, "name", group) or "DEFAULT", opt


def registered(conf):
    """The options that importing the modules has registered: group, option."""
    for entry in conf._opts.values():
        yield "DEFAULT", entry["opt"]
    for name, group in conf._groups.items():
        for entry in group._opts.values():
            yield name, entry["opt"]


def plugins():
    """The options of keystoneauth's plugins, of which a section has those of its ``auth_type``."""
    from keystoneauth1 import loading

    for name, loader in sorted(loading.get_available_plugin_loaders().items()):
        with contextlib.suppress(Exception):
            for opt in loader.get_options():
                yield name, opt._to_oslo_opt()


def interfaces():
    """The options of os-vif's plugins."""
    from stevedore import extension

    for plugin in extension.ExtensionManager("os_vif", invoke_on_load=False):
        for opt in getattr(plugin.plugin, "CONFIG_OPTS", ()):
            yield "os_vif_%s" % plugin.name, opt


def main():
    """Print the options."""
    namespaces = re.findall(r"^namespace = (\S+)", sys.stdin.read(), re.MULTILINE)
    conf = cfg.CONF
    for module in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    of_plugins = {opt.dest for _, opt in plugins()}
    present = {(group, opt.dest) for group, opt in registered(conf)}
    seen = {}
    for library, group, opt in listed(namespaces):
        seen.setdefault((group, opt.dest), option(group, opt, library))
    for key, entry in seen.items():
        # Nova lists them for its sample; they are registered for the auth_type of their section.
        if entry["library"] == "nova.conf" and key not in present and key[1] in of_plugins:
            entry["lazy"] = True
    for group, opt in registered(conf):
        seen[(group, opt.dest)] = {**option(group, opt, seen.get((group, opt.dest), {}).get("library", "nova"))}
    for group, opt in interfaces():
        seen.setdefault((group, opt.dest), option(group, opt, "os-vif"))
    for group in sorted({group for group, name in seen if name == "auth_type"}):
        for _, opt in plugins():
            seen.setdefault((group, opt.dest), dict(option(group, opt, "keystoneauth1"), lazy=True))
    for _, entry in sorted(seen.items()):
        print(json.dumps(entry))


if __name__ == "__main__":
    main()
