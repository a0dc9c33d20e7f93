package codegen

import (
	"fmt"
	"testing"
)

// BenchmarkGenerate1000 writes 1,000 tools of ten parameters in both languages.
func BenchmarkGenerate1000(b *testing.B) {
	props := map[string]any{}
	for i := range 10 {
		props[fmt.Sprint("p", i)] = map[string]any{"type": "string", "description": "one parameter of ten"}
	}
	schema := parse(b, map[string]any{"type": "object", "properties": props, "required": []string{"p0"}})
	tools := make([]Tool, 1000)
	for i := range tools {
		tools[i] = Tool{Name: fmt.Sprint("tool_", i), Description: "does one thing", Input: schema}
	}
	for b.Loop() {
		if _, err := Generate(Server{Name: "s"}, tools, Languages); err != nil {
			b.Fatal(err)
		}
	}
}
