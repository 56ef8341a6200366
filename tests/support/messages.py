"""Protobuf message classes without protoc: each call makes classes as a file of their own would."""

from collections.abc import Iterable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto


def field(number: int, name: str, kind: str = "int64", *, repeated: bool = False, **more: Any) -> Any:
    """Return a field; ``kind``: a type of protobuf, or the name of a message or an enumeration that ``more`` names."""
    known = getattr(FIELD, f"TYPE_{kind.upper()}", None)
    label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
    return FIELD(number=number, name=name, label=label, **({"type": known} if known else {"type_name": kind}), **more)


def message_type(name: str, *fields: Any, map_entry: bool = False) -> Any:
    """Return a message type that is to be within another one; ``map_entry``: of a map."""
    options = descriptor_pb2.MessageOptions(map_entry=map_entry)
    return descriptor_pb2.DescriptorProto(name=name, field=fields, options=options)


def message(
    *fields: Any,
    name: str = "Order",
    reserved: Iterable[int] = (),
    oneofs: Iterable[str] = (),
    inner: Iterable[Any] = (),
    enum: dict[str, int] | None = None,
    syntax: str = "proto3",
) -> Any:
    """Return the class of a message of package ``shop``; ``enum``: the members of its enumeration State."""
    raw = descriptor_pb2.DescriptorProto(name=name, field=fields, nested_type=inner)
    raw.reserved_range.extend(descriptor_pb2.DescriptorProto.ReservedRange(start=n, end=n + 1) for n in reserved)
    raw.oneof_decl.extend(descriptor_pb2.OneofDescriptorProto(name=each) for each in oneofs)
    if enum is not None:
        values = [descriptor_pb2.EnumValueDescriptorProto(name=each, number=number) for each, number in enum.items()]
        raw.enum_type.append(descriptor_pb2.EnumDescriptorProto(name="State", value=values))
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax=syntax, message_type=[raw])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
