package a2a

import (
	"testing"

	"waldo/internal/protocol/strictjson"
)

// FuzzMessage: a message calls a skill of the list with an object, or nothing.
func FuzzMessage(f *testing.F) {
	f.Add(`{"message":{"messageId":"1","role":"ROLE_USER","metadata":{"skill":"a"},"parts":[{"text":"x"}]}}`)
	f.Add(`{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"data":{"skill":"b","arguments":{"x":1}}}]}}`)
	schema, err := strictjson.Parse([]byte(oneString))
	if err != nil {
		f.Fatal(err)
	}
	skills := []Skill{{ID: "a", capability: "a", input: schema}, {ID: "b", capability: "b"}}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := strictjson.Parse([]byte(s))
		if err != nil {
			return
		}
		var p sending
		if decode(v, &p) != nil || p.Message.check() != nil {
			return
		}
		skill, args, no := chosen(p.Message, skills)
		if no == nil && (skill != "a" && skill != "b" || args.Kind() != '{') {
			t.Errorf("%s with %s", skill, args.Raw())
		}
	})
}
