package webhook

import (
	"cmp"
	"encoding/json"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// line summarises an event of a webhook in one line of waldo log.
func line(p terminal.Paint, body json.RawMessage) display.Text {
	var b struct {
		Event, Hook, Principal, Reason, Result, Session, Target, Peer string
		Delivery                                                      string `json:"delivery_id"`
		Count, Bytes                                                  int
	}
	_ = json.Unmarshal(body, &b)
	switch b.Event {
	case "received":
		return display.Sprintf("%s %s for %s, %d bytes from %s", p.Good("received"), b.Delivery, b.Hook, b.Bytes, b.Peer)
	case "refused":
		return display.Sprintf("%s for %s from %s: %s, %s", p.Bad("refused"), cmp.Or(b.Hook, "no webhook"), b.Peer, b.Reason,
			display.Count(b.Count, "request"))
	}
	if b.Result != "" {
		b.Event += " (" + b.Result + ")"
	}
	what := display.Sprintf("%s %s of %s to %s, by %s", b.Event, b.Delivery, b.Hook, b.Target, b.Principal)
	if b.Session != "" {
		what += display.Sprintf(", agent %s", b.Session)
	}
	if b.Reason != "" {
		what += display.Sprintf(": %s", b.Reason)
	}
	return what
}
