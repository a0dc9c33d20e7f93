package jsonrpc

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"waldo/internal/protocol/strictjson"
)

// MalformedResponse is the error of Call for an answer that cannot be parsed. The effect of the request is unknown.
type MalformedResponse struct {
	Why string
	// Shallow is the result of an answer whose only fault is its depth, without what was too deep (strictjson.Shallow).
	Shallow strictjson.Value
}

// Error says what was wrong with the answer.
func (s *MalformedResponse) Error() string { return "an answer that cannot be read: " + s.Why }

// Malformed returns the error for a frame that Parse refused.
func Malformed(frame []byte, fault *Error) *MalformedResponse {
	bad := &MalformedResponse{Why: fault.Message}
	if flat := strictjson.Shallow(frame); flat != nil {
		if m, fault := Parse(flat); fault == nil {
			bad.Shallow = m.Result
		}
	}
	return bad
}

// FailMalformed fails the request that a refused frame was meant to answer. It finds the request by the id, by the
// stream on which the frame came (request of; 0: unknown), or because only one request waits. Other requests go on
// waiting.
func (p *Pending) FailMalformed(frame []byte, fault *Error, of int64) {
	id, answers := answerTo(frame)
	p.mu.Lock()
	defer p.mu.Unlock()
	if isMultilineJSON(frame) {
		p.fail(p.of(of), &MalformedResponse{Why: "it is spread over several lines, and each message has to be one"})
	} else if id != "" {
		p.fail(p.byID[id], Malformed(frame, fault))
	} else if answers {
		p.fail(p.of(of), Malformed(frame, fault))
	}
}

// of returns the request of a number; of 0 the one that waits alone, but for those that wait for as long as
// the connection lives. The lock is held.
func (p *Pending) of(n int64) (one *Waiting) {
	if n != 0 {
		return p.byID[strconv.FormatInt(n, 10)]
	}
	for _, w := range p.byID {
		if w.stands {
			continue
		}
		if one != nil {
			return nil
		}
		one = w
	}
	return one
}

// fail ends the wait of a request, if there is one. The lock is held.
func (p *Pending) fail(w *Waiting, why *MalformedResponse) {
	if w != nil {
		delete(p.byID, w.key)
		w.Answer <- Message{malformed: why} // has room for the one answer
	}
}

// isMultilineJSON reports whether a frame is one line of a message that was written over several lines. It looks for
// the member that all messages have, because a server's log line may begin with a brace too.
func isMultilineJSON(frame []byte) bool {
	rest, is := bytes.CutPrefix(frame, []byte(`"jsonrpc"`))
	return is && bytes.HasPrefix(bytes.TrimSpace(rest), []byte(":"))
}

// answerTo reports whether a frame was meant as an answer, and to which id; "" if unknown. It accepts more than Parse,
// because its result only fails a request.
func answerTo(frame []byte) (id string, answers bool) {
	d := jsontext.NewDecoder(bytes.NewReader(bytes.TrimPrefix(frame, []byte("\ufeff"))),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	t, err := d.ReadToken()
	if err == nil && t.Kind() == '[' { // a batch: its first
		t, err = d.ReadToken()
	}
	if err != nil || t.Kind() != '{' {
		return "", false
	}
	for {
		name, err := d.ReadToken()
		if err != nil || name.Kind() != '"' {
			return id, answers
		}
		switch name.String() {
		case "method":
			return "", false // the id belongs to the other side
		case "result", "error":
			answers = true
		case "id":
			if v, err := d.ReadToken(); err != nil || id != "" && id != v.String() {
				return "", false
			} else if k := v.Kind(); k == '"' || k == '0' {
				id = v.String()
			}
			continue
		}
		if d.SkipValue() != nil {
			return id, answers
		}
	}
}
