package main

import (
	"strings"
	"testing"
)

// TestListsAreRedacted: the classes of the configuration hold in what a server writes about itself, and its tools stay
// callable.
func TestListsAreRedacted(t *testing.T) {
	const person = "jane.roe@customer.example"
	fill := func(s string) string { return strings.ReplaceAll(s, "WHO", person) }
	s := script(t, map[string]string{
		"tools": fill(`[{"name":"go","title":"WHO","description":"of WHO","inputSchema":{"type":"object","properties":{
			"WHO":{"type":"string"},"to":{"type":"string","title":"WHO","description":"WHO","enum":["WHO","a"],"default":"WHO",
			"examples":["WHO"]}}},"outputSchema":{"type":"object","description":"WHO"},"annotations":{"title":"WHO"}}]`),
		"prompts":   fill(`[{"name":"p","title":"WHO","description":"WHO","arguments":[{"name":"a","description":"WHO"}]}]`),
		"resources": fill(`[{"uri":"x://y","name":"WHO","title":"WHO","description":"WHO"},{"uri":"x://WHO","name":"n"}]`),
		"templates": fill(`[{"uriTemplate":"x://{a}/","name":"WHO","description":"WHO"},{"uriTemplate":"x://{a}/WHO","name":"n"}]`),
	})
	config := configOf(map[string]*scripted{"s": s})
	hidden := atGateway(t, strings.Replace(config, "version: 1\n", "version: 1\nredaction: {model: [secrets, email]}\n", 1))
	control := atGateway(t, config)
	for method, name := range map[string]string{
		"tools/list": "s__go", "prompts/list": "s__p", "resources/list": "waldo://s/x://y",
		"resources/templates/list": "waldo://s/x://{a}/",
	} {
		if got := hidden.rpc(method, "{}"); strings.Contains(got, person) || !strings.Contains(got, `"`+name+`"`) ||
			!strings.Contains(got, "[EMAIL]") {
			t.Errorf("%s: %s", method, got)
		}
		if got := control.rpc(method, "{}"); !strings.Contains(got, person) {
			t.Errorf("control: %s: %s", method, got)
		}
	}
	found := hidden.rpc("tools/call", `{"name":"search_tools","arguments":{"query":"go","detail":"full"}}`)
	if strings.Contains(found, person) || !strings.Contains(found, "s__go") {
		t.Error(found)
	}
	if text, bad, raw := hidden.told("s__go"); bad || text == "" {
		t.Error("it cannot be called:", raw)
	}
}
