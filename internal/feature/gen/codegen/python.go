package codegen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func pythonConstants(s Server) string {
	return "SERVER = " + pythonText(s.Name) + "\nSERVER_URL = " + pythonText(s.URL) + "\n"
}

func pythonIndex(wire, modules []string) string {
	var b strings.Builder
	b.WriteString("from typing import Any, Dict\n\nfrom ._client import HEADERS, SERVER, SERVER_URL, ToolError\n\n" +
		"# The module of each tool.\nTOOLS: Dict[str, str] = {\n")
	for i, name := range wire {
		fmt.Fprintf(&b, "    %s: %s,\n", pythonText(name), pythonText(modules[i]))
	}
	b.WriteString(`}

__all__ = ["HEADERS", "SERVER", "SERVER_URL", "TOOLS", "ToolError", "load"]


def load(tool: str) -> Any:
    """Imports the module of a tool by the tool's own name."""
    from importlib import import_module
    return import_module("." + TOOLS[tool], __name__)
`)
	return b.String()
}

func writePython(t Tool, s shape) string {
	p := printer{memo: map[*typ]string{}, any: "Any", write: pythonType}
	var b strings.Builder
	b.WriteString("(\n")
	lines := documentation(t, s.params)
	for i, line := range lines {
		if i < len(lines)-1 {
			line += "\n"
		}
		b.WriteString("    " + pythonText(line) + "\n")
	}
	b.WriteString(")\nfrom typing import Any, Dict, List, Literal, Optional, TypedDict, Union\n\n")
	b.WriteString("from ._client import SERVER_URL, call_tool, call_tool_sync\n\nTOOL = " + pythonText(t.Name) + "\n")
	for _, o := range slices.Concat(s.objects, s.results) {
		pythonObject(&b, &p, o)
	}
	if s.result.kind != record {
		alias := p.text(s.result)
		if s.result.kind == null {
			alias = "Union[None]" // for a type checker None alone is a value
		}
		b.WriteString("\nResult = " + alias + "\n")
	}
	params := "Params"
	if s.params.open && len(s.params.fields) > 0 {
		params = "Union[Params, Dict[str, Any]]"
	}
	b.WriteString(strings.ReplaceAll(`

async def call(base_url: str = SERVER_URL, params: Optional[Params] = None) -> Result:
    result: Result = await call_tool(TOOL, base_url, params)
    return result


def call_sync(base_url: str = SERVER_URL, params: Optional[Params] = None) -> Result:
    result: Result = call_tool_sync(TOOL, base_url, params)
    return result


call.__doc__ = call_sync.__doc__ = __doc__
`, "Optional[Params]", "Optional["+params+"]"))
	return b.String()
}

// pythonObject writes a TypedDict. The keys are strings, so that any name is a field. An object without fields is a
// plain dict.
func pythonObject(b *strings.Builder, p *printer, o *object) {
	var bases []string
	for _, needed := range []bool{true, false} {
		base, end := "_optional_"+o.name, ", total=False)\n"
		if needed {
			base, end = "_needed_"+o.name, ")\n"
		}
		n := 0
		for _, f := range o.fields {
			if f.required != needed {
				continue
			}
			if n++; n == 1 {
				bases = append(bases, base)
				b.WriteString("\n" + base + " = TypedDict(" + pythonText(base) + ", {\n")
			}
			b.WriteString("    " + pythonText(f.name) + ": " + p.text(f.typ) + ",\n")
		}
		if n > 0 {
			b.WriteString("}" + end)
		}
	}
	if bases == nil {
		bases = []string{"Dict[str, Any]"}
	}
	b.WriteString("\n\nclass " + o.name + "(" + strings.Join(bases, ", ") + "):\n    pass\n\n")
}

func pythonType(p *printer, t *typ) string {
	switch t.kind {
	case text:
		return "str"
	case integer:
		return "int"
	case number:
		return "float"
	case boolean:
		return "bool"
	case null:
		return "None"
	case value:
		return "Literal[" + pythonValue(t.value) + "]"
	case list:
		return "List[" + p.text(t.elems[0]) + "]"
	case dict:
		return "Dict[str, " + p.text(t.elems[0]) + "]"
	case tuple:
		if t.open {
			return "List[Any]"
		}
		return "List[" + p.text(simplest(&typ{kind: union, elems: t.elems})) + "]"
	case record:
		name := pythonText(t.named.name) // a string, as the class can stand below
		if t.named.open && len(t.named.fields) > 0 {
			return "Union[" + name + ", Dict[str, Any]]" // a TypedDict has no other fields
		}
		return name
	case union:
		var values, parts []string
		for _, e := range t.elems {
			if e.kind == value {
				values = append(values, pythonValue(e.value))
			} else {
				parts = append(parts, p.text(e))
			}
		}
		if values != nil {
			parts = append(parts, "Literal["+strings.Join(values, ", ")+"]")
		}
		return "Union[" + strings.Join(parts, ", ") + "]"
	}
	return p.any
}

func pythonValue(v any) string {
	switch v := v.(type) {
	case string:
		return pythonText(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		if v {
			return "True"
		}
		return "False"
	}
	return "None"
}

// printer writes types, each once: a type that would be longer than maxTypeText is anything.
type printer struct {
	memo  map[*typ]string
	any   string
	write func(*printer, *typ) string
}

func (p *printer) text(t *typ) string {
	s, ok := p.memo[t]
	if !ok {
		if s = p.write(p, t); len(s) > maxTypeText {
			s = p.any
		}
		p.memo[t] = s
	}
	return s
}
