package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
)

// KindPort is the kind of records about ports of sandboxes that are forwarded to this machine's loopback.
const KindPort = "port"

// PortBody is the record of one forwarded port.
type PortBody struct {
	CallID    string `json:"call_id,omitempty"`   // of a launched host
	Session   string `json:"session,omitempty"`   // the same
	Sandbox   string `json:"sandbox,omitempty"`   // the name of a named one
	Principal string `json:"principal,omitempty"` // whose session or sandbox it is
	By        string `json:"by"`                  // who forwards it
	Port      uint16 `json:"port"`                // inside
	At        string `json:"at"`                  // the address outside
}

// RecordPort logs a port. The caller forwards it only then.
func (h *App) RecordPort(ctx context.Context, b PortBody, at net.Listener) error {
	b.By, b.At = Owner(), at.Addr().String()
	body, err := json.Marshal(b)
	if err == nil {
		_, err = h.Log.Append(ctx, KindPort, body, false)
	}
	if err != nil {
		return fmt.Errorf("port %d is not forwarded, because the log has no record of it: %w", b.Port, err)
	}
	return nil
}
