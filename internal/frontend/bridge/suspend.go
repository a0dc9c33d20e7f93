package bridge

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// begin counts a call that is under way.
func (w *bridgeConn) begin() (over func()) {
	w.count(1, 0)
	return func() { w.count(-1, 0) }
}

// wait counts a call that has begun as one that waits for a human.
func (w *bridgeConn) wait() (over func()) {
	w.count(-1, 1)
	return func() { w.count(1, -1) }
}

// count changes the numbers of calls, and tells a program that stands still when it has to.
func (w *bridgeConn) count(active, asking int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.active == 0 && w.asking > 0
	w.active, w.asking = w.active+active, w.asking+asking
	if now := w.active == 0 && w.asking > 0; w.still != nil && now != before {
		w.still(now)
	}
}

// hold keeps a call that waits for a human unanswered, so that its program can be suspended with it. It returns when
// the program was not taken, or the connection has ended. The call itself is over: nothing is executed for it any more.
func (w *bridgeConn) hold(ctx context.Context, m jsonrpc.Message, r call.Result) {
	request := string(m.ID.Raw())
	w.mu.Lock()
	w.held[request] = r.ApprovalID
	w.active--
	w.mu.Unlock()
	told := w.conn.Tell(ctx, "waldo/waiting", map[string]any{"id": m.ID, "approval_id": r.ApprovalID})
	if told == nil {
		select {
		case <-ctx.Done():
		case <-w.stays:
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, request)
	w.active++
}

// suspend takes a program all of whose calls wait. One that is not taken gets the answers to them.
func (w *bridgeConn) suspend(m jsonrpc.Message) (any, error) {
	var p struct {
		Image string `json:"image"`
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.place == nil || w.place.Image != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "no such method here")
	}
	image, err := []byte(nil), error(nil)
	if params(m, &p) {
		image, err = base64.StdEncoding.DecodeString(p.Image)
	}
	if err != nil || len(image) == 0 || w.active > 0 || len(w.held) == 0 {
		select {
		case <-w.stays:
		default:
			close(w.stays)
		}
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams,
			"the program is not suspended: it is too large, or a call of it does not wait")
	}
	w.place.Image, w.place.Approvals = image, slices.Sorted(maps.Values(w.held))
	return struct{}{}, nil
}
