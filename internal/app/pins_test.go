package app

import (
	"fmt"
	"testing"

	"waldo/internal/protocol/strictjson"
)

// TestTexts: every value of a definition is there with its name, also one that is no text.
func TestTexts(t *testing.T) {
	v, err := strictjson.Parse([]byte(`{"description":"d","inputSchema":{"properties":{
		"a":{"enum":["x","y",1]},"no text":{},"flag":false,"b":{"default":{"deep":["z"]}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = "[{description d} {inputSchema.properties.a.enum x} {inputSchema.properties.a.enum y} " +
		"{inputSchema.properties.a.enum 1} " +
		"{inputSchema.properties.b.default.deep z} {inputSchema.properties.flag false} {inputSchema.properties.no text {}}]"
	if got := fmt.Sprint((Definition{}).with("", v).Texts); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
