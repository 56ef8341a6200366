"""Choice of the branch of an Avro union where Python's types do not decide: several records, or kinds of text.

A record of such a union says its name under "-type", as fastavro's writer takes it: so it is told apart, and goes on as
what it came as. A value that fits several branches and names none is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BRANCH = "-type"  # no name of Avro has a hyphen

_RECORDS = ("record", "error")
_KINDS = {"record": "object", "error": "object", "map": "object", "string": "text", "enum": "text"}
_KINDS |= {"bytes": "bytes", "fixed": "bytes"}
_OF_PYTHON = (("object", Mapping), ("text", str), ("bytes", bytes))
_PLAIN: dict[str, Any] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "string": str,
    "bytes": (bytes, bytearray),
    "map": (),
    "array": (),
}


class Branches:
    """The unions of one parsed schema."""

    def __init__(self, parsed: Any) -> None:
        self._names: dict[str, Any] = {}
        self._schema = parsed
        unions = [*_unions(parsed, self._names)]
        self.confusable = [
            [self._name(each) for each in rivals]
            for union in unions
            for kind in ("object", "text", "bytes")
            if len(rivals := self._of_kind(union, kind)) > 1
        ]  # the names of the branches that look alike, of each such union

    def chosen(self, value: Any) -> Any:
        """Return a value for the writer, with (name, value) where a branch must be told. Raises ValueError: which?"""
        return self._walk(self._schema, value, self._choose)

    def marked(self, value: Any) -> Any:
        """Return a value of the reader's, which tells (name, record) in each union: where it matters, with "-type"."""
        return self._walk(self._schema, value, self._mark)

    def alike(self) -> list[tuple[str, str]]:
        """Return the records of one union of which a value of the one may be one of the other, by their fields."""
        records = [[self._names[each] for each in names if each in self._names] for names in self.confusable]
        return [
            (one["name"], other["name"])
            for rivals in records
            for number, one in enumerate(rivals)
            for other in rivals[number + 1 :]
            if one["type"] in _RECORDS and other["type"] in _RECORDS
            if _may_be(one, other) or _may_be(other, one)
        ]

    def _walk(self, schema: Any, value: Any, of_union: Any) -> Any:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return of_union(schema, value)
        kind = _kind(schema)
        if isinstance(value, tuple) and kind in _RECORDS:  # the writer's was a union, the reader's is none
            value = value[1]
        if kind in _RECORDS and isinstance(value, Mapping):
            types = {field["name"]: field["type"] for field in schema["fields"]}
            return {
                name: self._walk(types[name], part, of_union) if name in types else part for name, part in value.items()
            }
        if kind == "array" and isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return [self._walk(schema["items"], part, of_union) for part in value]
        if kind == "map" and isinstance(value, Mapping):
            return {name: self._walk(schema["values"], part, of_union) for name, part in value.items()}
        return value

    def _choose(self, union: list[Any], value: Any) -> Any:
        """Return a value of a union in the form that the writer takes."""
        name, inner = None, value
        if isinstance(value, tuple) and len(value) == len(("name", "value")):
            name, inner = value
        elif isinstance(value, Mapping) and BRANCH in value:
            name, inner = value[BRANCH], {key: part for key, part in value.items() if key != BRANCH}
        if name is not None:
            branch = next((each for each in union if self._name(each) == name), None)
            if branch is None:
                raise ValueError(f"{name!r} is none of {', '.join(map(self._name, union))}")
            return name, self._walk(branch, inner, self._choose)
        kind = next((kind for kind, type_ in _OF_PYTHON if isinstance(value, type_)), "")
        rivals = self._of_kind(union, kind)
        found = [each for each in (rivals if len(rivals) > 1 else union) if self._fits(each, value)]
        if len(rivals) < len(("one", "other")) or not found:
            return self._walk(found[0], value, self._choose) if found else value
        if len(exact := [each for each in found if self._is_exact(each, value)]) == 1:
            found = exact
        names = [*map(self._name, found)]
        if len(found) > 1:
            way = f'{{"{BRANCH}": "{names[0]}", …}}' if kind == "object" else f'("{names[0]}", value)'
            raise ValueError(f"{value!r} may be {' or '.join(names)}, and only its name tells: give {way}")
        return names[0], self._walk(found[0], value, self._choose)

    def _mark(self, union: list[Any], value: Any) -> Any:
        """Return a value of a union as the user has it."""
        if isinstance(value, tuple):
            name, inner = value
            branch = next((each for each in union if self._name(each) == name), None)
            inner = inner if branch is None else self._walk(branch, inner, self._mark)
            several = isinstance(inner, dict) and len(self._of_kind(union, "object")) > 1
            return {BRANCH: name, **inner} if several else inner
        branch = next((each for each in union if self._fits(each, value)), None)
        return value if branch is None else self._walk(branch, value, self._mark)

    def _fits(self, schema: Any, value: Any) -> bool:
        """Tell whether a value may be of a schema. What a logical type takes is not looked at."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return isinstance(value, tuple) or any(self._fits(each, value) for each in schema)
        kind = _kind(schema)
        if isinstance(schema, Mapping) and "logicalType" in schema:
            return value is not None
        if kind == "enum":
            return isinstance(value, str) and value in schema["symbols"]
        if kind == "fixed":
            return isinstance(value, bytes | bytearray) and len(value) == schema["size"]
        if kind in _RECORDS:
            return isinstance(value, Mapping) and self._fits_record(schema, value)
        if kind == "map" and isinstance(value, Mapping):
            return all(isinstance(name, str) and self._fits(schema["values"], part) for name, part in value.items())
        if kind == "array" and isinstance(value, list | tuple):
            return all(self._fits(schema["items"], part) for part in value)
        return isinstance(value, _PLAIN[kind]) and (kind == "boolean" or not isinstance(value, bool))

    def _fits_record(self, schema: Any, value: Mapping[str, Any]) -> bool:
        if value.get(BRANCH, schema["name"]) != schema["name"]:
            return False
        fields = {field["name"]: field for field in schema["fields"]}
        return value.keys() - {BRANCH} <= fields.keys() and all(
            self._fits(field["type"], value[name]) if name in value else "default" in field
            for name, field in fields.items()
        )

    def _is_exact(self, schema: Any, value: Any) -> bool:
        """Tell whether a record of this schema has just these fields."""
        schema = self._resolved(schema)
        return _kind(schema) in _RECORDS and {field["name"] for field in schema["fields"]} == value.keys()

    def _of_kind(self, union: list[Any], kind: str) -> list[Any]:
        return [each for each in union if _KINDS.get(_kind(self._resolved(each))) == kind and not _logical(each)]

    def _resolved(self, schema: Any) -> Any:
        if isinstance(schema, str):
            return self._names.get(schema, schema)
        if isinstance(schema, Mapping) and not isinstance(schema["type"], str):
            return self._resolved(schema["type"])  # {"type": {…}} and {"type": […]} say no more than what is in them
        return schema

    def _name(self, schema: Any) -> str:
        """Return the name of a branch for a union's writer: that of a named type, else its type."""
        schema = self._resolved(schema)
        return str(schema.get("name", schema["type"]) if isinstance(schema, Mapping) else schema)


def _unions(schema: Any, names: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the unions of a parsed schema, and gather its named types."""
    if isinstance(schema, list):
        yield schema
        for each in schema:
            yield from _unions(each, names)
    elif isinstance(schema, Mapping):
        if "name" in schema:
            names[schema["name"]] = schema
        for part in ("type", "items", "values"):
            yield from _unions(schema.get(part), names)
        for field in schema.get("fields", ()):
            yield from _unions(field["type"], names)


def _kind(schema: Any) -> str:
    return "union" if isinstance(schema, list) else str(schema["type"] if isinstance(schema, Mapping) else schema)


def _logical(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "logicalType" in schema


def _may_be(one: Any, other: Any) -> bool:
    """Tell whether all fields of a record are among those of another, and no other one must be there."""
    fields = {field["name"] for field in one["fields"]}
    theirs = {field["name"]: field for field in other["fields"]}
    return fields <= theirs.keys() and all("default" in theirs[name] for name in theirs.keys() - fields)
