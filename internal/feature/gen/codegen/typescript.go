package codegen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func typescriptConstants(s Server) string {
	return "export const SERVER: string = " + typescriptText(s.Name) + ";\n" +
		"export const SERVER_URL: string = " + typescriptText(s.URL) + ";\n"
}

func typescriptIndex(wire, modules []string) string {
	var b strings.Builder
	b.WriteString("export { HEADERS, SERVER, SERVER_URL, ToolError } from \"./_client.ts\";\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "export * as %s from \"./%s.ts\";\n", m, m)
	}
	b.WriteString("\n// The module of each tool.\nexport const TOOLS: ReadonlyMap<string, string> = new Map([\n")
	for i, name := range wire {
		fmt.Fprintf(&b, "  [%s, %s],\n", typescriptText(name), typescriptText(modules[i]))
	}
	b.WriteString("]);\n")
	return b.String()
}

func writeTypeScript(t Tool, s shape) string {
	p := printer{memo: map[*typ]string{}, any: "unknown", write: typescriptType}
	var b strings.Builder
	b.WriteString("import { SERVER_URL, callTool } from \"./_client.ts\";\n\n")
	b.WriteString("export const TOOL = " + typescriptText(t.Name) + ";\n\nexport const DESCRIPTION = [\n")
	for _, line := range documentation(t, s.params) {
		b.WriteString("  " + typescriptText(line) + ",\n")
	}
	b.WriteString("].join(\"\\n\");\n")
	for _, o := range slices.Concat(s.objects, s.results) {
		b.WriteString("\nexport interface " + o.name + " {\n")
		for _, f := range o.fields {
			mark := "?: "
			if f.required {
				mark = ": "
			}
			b.WriteString("  " + typescriptText(f.name) + mark + p.text(f.typ) + ";\n")
		}
		if o.open {
			b.WriteString("  [key: string]: unknown;\n")
		}
		b.WriteString("}\n")
	}
	if s.result.kind != record {
		b.WriteString("\nexport type Result = " + p.text(s.result) + ";\n")
	}
	b.WriteString(`
export async function call(baseUrl: string = SERVER_URL, params?: Params): Promise<Result> {
  return (await callTool(TOOL, baseUrl, params)) as Result;
}
`)
	return b.String()
}

func typescriptType(p *printer, t *typ) string {
	switch t.kind {
	case text:
		return "string"
	case integer, number:
		return "number"
	case boolean:
		return "boolean"
	case null:
		return "null"
	case value:
		return typescriptValue(t.value)
	case list:
		return "Array<" + p.text(t.elems[0]) + ">"
	case dict:
		return "Record<string, " + p.text(t.elems[0]) + ">"
	case record:
		return t.named.name
	case tuple:
		var parts []string
		for i, e := range t.elems {
			part := "(" + p.text(e) + ")"
			if i >= t.least {
				part += "?"
			}
			parts = append(parts, part)
		}
		if t.open {
			parts = append(parts, "...unknown[]")
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case union:
		var parts []string
		for _, e := range t.elems {
			parts = append(parts, p.text(e))
		}
		return strings.Join(parts, " | ")
	}
	return p.any
}

func typescriptValue(v any) string {
	switch v := v.(type) {
	case string:
		return typescriptText(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		return strconv.FormatBool(v)
	}
	return "null"
}
