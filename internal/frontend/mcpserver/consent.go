package mcpserver

import (
	"context"
	"crypto/rand"
	"time"

	"waldo/internal/model/call"
	"waldo/internal/protocol/strictjson"
)

// putFunc puts questions to a host and returns its answers, by the names of the questions.
type putFunc func(ctx context.Context, shown map[string]call.Question) (map[string]strictjson.Value, error)

// consent has the host put a question of waldo's own to its person, where the operator takes a host's answer, and
// reports whether one was taken. A host that declines or cancels, as hosts without a person do, has said no.
//
// A request of a legacy host stays open meanwhile, and hosts give up requests. So the question is waited for until
// Options.HostWait is over. It stays with the host, and the same call later finds its answer.
func (s *Session) consent(ctx context.Context, h *host, approvalID string) bool {
	if h == nil || !h.can.Form() || s.d.o.Consent == nil {
		return false
	}
	if h.p != nil { // the request has its answer while the question is open
		return s.elicit(ctx, approvalID, h.put)
	}
	select {
	case taken := <-s.pending(ctx, h, approvalID):
		return taken
	case <-time.After(time.Until(h.until)):
	case <-ctx.Done():
	}
	return false
}

// pending returns where the answer of a legacy host to a question arrives. It asks the host, unless it did before. A
// host that cancels its call is asked no more.
func (s *Session) pending(ctx context.Context, h *host, approvalID string) <-chan bool {
	taken := make(chan bool, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, open := s.asking[approvalID]
	s.asking[approvalID] = append(waiting, taken)
	if open {
		return taken
	}
	h.mu.Lock()
	link := h.link
	h.mu.Unlock()
	long, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.d.o.Park)
	context.AfterFunc(ctx, func() {
		if time.Now().Before(h.until) {
			cancel()
		}
	})
	go func() {
		defer cancel()
		said := s.elicit(long, approvalID, func(
			ctx context.Context, shown map[string]call.Question,
		) (map[string]strictjson.Value, error) {
			return askLegacy(ctx, link, shown)
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range s.asking[approvalID] {
			w <- said // has room for the one answer
		}
		delete(s.asking, approvalID)
	}()
	return taken
}

// elicit puts a question of waldo's own to the host by put, and reports whether its answer was taken.
func (s *Session) elicit(ctx context.Context, approvalID string, put putFunc) bool {
	text, ok := s.d.o.Consent.Put(ctx, s.who.Session, approvalID)
	if !ok {
		return false
	}
	form, err := call.ArgsOf(map[string]any{"message": "waldo asks you to decide:\n" + text,
		"requestedSchema": map[string]any{"type": "object", "required": []string{"answer"},
			"properties": map[string]any{"answer": map[string]any{
				"type": "string", "title": "May the agent do this?", "enum": []string{"yes", "no"},
			}}}})
	if err != nil {
		return false
	}
	key := "waldo_" + rand.Text() // random: no client can answer it before it is asked
	answers, err := put(ctx, map[string]call.Question{key: {Method: "elicitation/create", Params: form.Value()}})
	if err != nil {
		return false
	}
	answer, _ := answers[key].Members()
	content, _ := answer["content"].Members()
	action, _ := answer["action"].Text()
	word, _ := content["answer"].Text()
	yes := action == "accept" && word == "yes"
	if no := action == "decline" || action == "cancel" || action == "accept" && word == "no"; !yes && !no {
		return false
	}
	if err := s.d.o.Consent.Said(ctx, s.who.Session, approvalID, yes); err != nil {
		s.d.o.Log.Warn("the answer of a host was not taken", "approval", approvalID, "error", err)
		return false
	}
	return true
}
