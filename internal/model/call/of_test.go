package call

import (
	"testing"

	"waldo/internal/protocol/strictjson"
)

// TestCallOfATool: a call of a tool carries the digest and the annotations that the policy and the executor read.
func TestCallOfATool(t *testing.T) {
	v, err := strictjson.Parse([]byte(`{"destructiveHint":true}`))
	if err != nil {
		t.Fatal(err)
	}
	c := Call{Capability: "S__drop"}
	c.Of(Tool{Capability: "s.drop", Digest: "sha256:1", Annotations: v})
	if c.Capability != "s.drop" || c.ToolDigest != "sha256:1" ||
		string(c.Annotations.Raw()) != `{"destructiveHint":true}` {
		t.Errorf("%+v", c)
	}
}
