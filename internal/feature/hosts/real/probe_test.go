//go:build hosts

package real

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Answers of the probe's tools, each a unique word.
const (
	spoken  = "SPOKEN-4c1f"
	failed  = "FAILED-77aa"
	shaped  = "SHAPED-91b2"
	alone   = "ALONE-5d03"
	looked  = "LOOKED-02be"
	erased  = "ERASED-6f9d"
	reason  = "REASON-e60c: probes stay at home"
	picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)

// probe is an MCP server over lines, with a tool for each kind of answer.
func probe() {
	results := map[string]string{
		"probe_say":  `{"content":[{"type":"text","text":"` + spoken + `"}]}`,
		"probe_fail": `{"content":[{"type":"text","text":"` + failed + `"}],"isError":true}`,
		"probe_picture": `{"content":[{"type":"text","text":"a picture"},{"type":"image","mimeType":"image/png","data":"` +
			picture + `"}]}`,
		"probe_shape": `{"content":[{"type":"text","text":"{\"shape\":\"` + shaped + `\"}"}],"structuredContent":{"shape":"` +
			shaped + `"}}`,
		"probe_alone": `{"content":[],"structuredContent":{"shape":"` + alone + `"}}`,
		"probe_wait":  `{"content":[{"type":"text","text":"nobody was asked"}]}`,
		"probe_look":  `{"content":[{"type":"text","text":"` + looked + `"}]}`,
		"probe_erase": `{"content":[{"type":"text","text":"` + erased + `"}]}`,
		"probe_deny":  `{"content":[{"type":"text","text":"nothing was denied"}]}`,
	}
	hints := map[string]string{
		"probe_look":  `,"annotations":{"readOnlyHint":true}`,
		"probe_erase": `,"annotations":{"readOnlyHint":false,"destructiveHint":true}`,
	}
	var list []string
	for name := range results {
		list = append(list, `{"name":"`+name+
			`","description":"One kind of answer.","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}`+
			hints[name]+`}`)
	}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if json.Unmarshal([]byte(line), &m) != nil || m.ID == nil {
			continue
		}
		answer := `"error":{"code":-32601,"message":"no such method"}`
		switch m.Method {
		case "initialize":
			answer = `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"probe",` +
				`"version":"1"}}`
		case "ping":
			answer = `"result":{}`
		case "tools/list":
			answer = `"result":{"tools":[` + strings.Join(list, ",") + `]}`
		case "tools/call":
			if r := results[m.Params.Name]; r != "" {
				answer = `"result":` + r
			}
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,%s}\n", m.ID, answer)
	}
}
