"""The serde of protobuf messages, the description of a message type, and what a change of it makes unreadable.

A described message type is {"root": full name, "messages": {full name: {"fields": {number: …}, "reserved": […]}}}. A
field is a name, a type and whether it is repeated; an enumeration's type is ["enum", its number → name].
"""

from typing import Any, TypeVar, cast

from grete.api.serdes.serde import Codec, Serde
from grete.errors import ConfigError

M = TypeVar("M")
DescribedMessage = dict[str, Any]
DescribedMessages = dict[str, DescribedMessage]  # by name

RESERVE = "reserve the number in the message type"  # the way to take a field out
_TYPES = (  # by the numbers of FieldDescriptorProto.Type
    "",
    "double",
    "float",
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "bool",
    "string",
    "group",
    "message",
    "bytes",
    "uint32",
    "enum",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
)
_WIDER = {  # same bytes, and no value of the first is lost in the others
    "int32": ("int64",),
    "uint32": ("uint64", "int64"),
    "sint32": ("sint64",),
    "string": ("bytes",),
}


def protobuf(message: type[M]) -> Serde[M]:
    """Return a serde of protobuf messages. ``message``: a class that protoc has generated.

    Equal messages have equal bytes, in every process of one release of protobuf. Raises ConfigError if it is none.
    """
    descriptor = getattr(message, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(message, "FromString"):
        raise ConfigError(f"protobuf: {message!r} is not a message class: give one that protoc has generated")

    def encode(value: Any) -> bytes:
        if not isinstance(value, message):
            raise TypeError(f"need a {descriptor.full_name}")
        data: bytes = cast("Any", value).SerializeToString(deterministic=True)
        return data

    decode: Any = message.FromString  # type: ignore[attr-defined]  # every generated class has it
    return Codec(f"protobuf({descriptor.full_name})", (encode, decode), schema=describe_message(descriptor))


def has_maps(descriptor: Any, seen: frozenset[str] = frozenset()) -> bool:
    """Tell whether a message type has a map in it, whose order on the wire is that of no field."""
    if descriptor.full_name in seen:
        return False
    inner = [field.message_type for field in descriptor.fields if field.message_type is not None]
    seen |= {descriptor.full_name}
    return any(each.GetOptions().map_entry or has_maps(each, seen) for each in inner)


def describe_message(descriptor: Any) -> DescribedMessage:
    """Return a message type and all that it is made of, as JSON values that every process writes alike."""
    messages: DescribedMessages = {}
    _describe(descriptor, messages)
    return {"root": descriptor.full_name, "messages": messages}


def _describe(descriptor: Any, messages: DescribedMessages) -> None:
    if descriptor.full_name in messages:
        return
    from google.protobuf import descriptor_pb2

    described: DescribedMessage = {"fields": {}, "reserved": []}
    messages[descriptor.full_name] = described
    raw = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(raw)
    described["reserved"] = [[each.start, each.end - 1] for each in raw.reserved_range]
    for field in sorted(descriptor.fields, key=lambda field: int(field.number)):
        kind: Any = _TYPES[field.type]
        if field.message_type is not None:
            kind = [kind, field.message_type.full_name]
            _describe(field.message_type, messages)
        elif field.enum_type is not None:
            kind = [kind, {str(each.number): each.name for each in field.enum_type.values}]
        entry = {"name": field.name, "type": kind, "repeated": bool(field.is_repeated)}
        if field.is_required:
            entry["required"] = True
        if field.has_default_value:
            entry["default"] = repr(field.default_value)
        oneof = field.containing_oneof
        if oneof is not None and len(oneof.fields) > 1:
            entry["oneof"] = oneof.name
        described["fields"][str(field.number)] = entry


def shown_message(described: DescribedMessage) -> str:
    """Return a described message type in one line."""
    return _shown(described["root"], described["messages"], frozenset())


def _shown(name: str, messages: Any, open_: frozenset[str]) -> str:
    if name in open_:
        return name
    fields = (
        f"{field['name']}: {_shown_type(field, messages, open_ | {name})} = {number}"
        for number, field in messages[name]["fields"].items()
    )
    return f"{name}({', '.join(fields)})"


def _shown_type(field: Any, messages: Any, open_: frozenset[str]) -> str:
    kind = field["type"]
    if isinstance(kind, list):
        kind = _shown(kind[1], messages, open_) if isinstance(kind[1], str) else " | ".join(kind[1].values())
    return f"repeated {kind}" if field["repeated"] else str(kind)


def message_changes(before: DescribedMessage, now: DescribedMessage) -> list[str]:
    """Return the fields of written messages that cannot be read, or would be read as something else."""
    return _ComparingMessages(before["messages"], now["messages"]).of(before["root"], now["root"])


class _ComparingMessages:
    """Walks two message types at once. Names mean nothing on the wire, and numbers everything."""

    def __init__(self, before: Any, now: Any) -> None:
        self._before, self._now = before, now
        self._seen: set[tuple[str, str]] = set()

    def of(self, before: str, now: str) -> list[str]:
        """Return the differences in a message type and in those within it."""
        if (before, now) in self._seen:
            return []
        self._seen.add((before, now))
        old, new = self._before[before], self._now[now]
        texts = []
        for number, field in old["fields"].items():
            at = f"field {number} ({field['name']}) of {before}"
            if number in new["fields"]:
                texts += self._field(field, new["fields"][number], at)
            elif not _is_reserved(number, new):
                texts.append(f"{at} is gone, and its number is not reserved")
        names = [{number: field["name"] for number, field in each["fields"].items()} for each in (old, new)]
        texts += [f"field {text} of {before}" for text in _moved(*names)]
        for number, field in new["fields"].items():
            at = f"field {number} ({field['name']}) of {now}"
            if number not in old["fields"] and _is_reserved(number, old):
                texts.append(f"{at} has a number that was reserved")
            if number not in old["fields"] and "required" in field:
                texts.append(f"{at} is new and required, so no value of before is whole")
        return texts + self._oneofs(before, old["fields"], new["fields"])

    def _field(self, old: Any, new: Any, at: str) -> list[str]:
        kinds = old["type"], new["type"]
        if old["repeated"] == new["repeated"] and "required" not in {*new} - {*old}:
            if isinstance(kinds[0], list) and isinstance(kinds[1], list) and kinds[0][0] == kinds[1][0]:
                if isinstance(kinds[0][1], str):
                    return self.of(kinds[0][1], kinds[1][1])
                gone = {number: name for number, name in kinds[0][1].items() if number not in kinds[1][1]}
                texts = [f"{at} has no value {', '.join(gone.values())} any more"] if gone else []
                return texts + [f"{at}: value {text}" for text in _moved(kinds[0][1], kinds[1][1])]
            if "default" in old and "default" in new and old["default"] != new["default"]:
                return [f"{at} had the default {old['default']} and has {new['default']}"]
            if kinds[0] == kinds[1] or (isinstance(kinds[0], str) and kinds[1] in _WIDER.get(kinds[0], ())):
                return []
        shown = (_shown_type(field, names, frozenset()) for field, names in ((old, self._before), (new, self._now)))
        return [f"{at} was {' and is '.join(shown)}{' (required)' if 'required' in new else ''}"]

    def _oneofs(self, name: str, old: Any, new: Any) -> list[str]:
        """Return the fields that now exclude one another: of a value that has both, one would be lost."""
        kept = [number for number in old if number in new and "oneof" in new[number]]
        pairs = ((a, b) for index, a in enumerate(kept) for b in kept[index + 1 :])
        return [
            f"fields {a} ({new[a]['name']}) and {b} ({new[b]['name']}) of {name} are in one oneof now"
            for a, b in pairs
            if new[a]["oneof"] == new[b]["oneof"] and ("oneof" not in old[a] or old[a]["oneof"] != old[b].get("oneof"))
        ]


def _moved(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Return the names (number → name) that have the number of another one now: its values would be read as theirs."""
    were = {name: number for number, name in old.items()}
    return [
        f"{name} had number {were[name]} and has {number}, which was that of {old[number]}"
        for number, name in new.items()
        if number in old and were.get(name, number) != number
    ]


def _is_reserved(number: str, message: Any) -> bool:
    return any(first <= int(number) <= last for first, last in message["reserved"])
