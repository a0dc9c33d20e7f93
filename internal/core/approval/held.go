package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"waldo/internal/model/call"
)

// Held is the capability of a question about the held calls of a program. No contract can make it callable.
const Held call.Capability = "held_calls"

// HeldCode is the code of the first reason of such a question. No tool of that name gives it.
const HeldCode = "hold.statement"

// Calls returns the calls of a question about the held calls of a program, in order; nil for any other question.
func (q Question) Calls() []json.RawMessage {
	var list struct {
		Calls []json.RawMessage `json:"calls"`
	}
	if q.Capability != Held || len(q.Reasons) == 0 || q.Reasons[0].Code != HeldCode || json.Unmarshal(q.Args, &list) != nil {
		return nil
	}
	return list.Calls
}

// Strikes returns why some rows cannot be struck out of a yes to a question; nil: they can. The numbers are in order.
func (q Question) Strikes(rows []int) *Refused {
	_, no := q.remain(rows)
	return no
}

// remain returns the root of the calls that a yes covers: "sha256:…" of the Merkle tree (RFC 6962 §2.1) over the RFC
// 8785 form of each call that is not struck out. struck are numbers from 1, in order. Other questions have no root.
func (q Question) remain(struck []int) (root string, no *Refused) {
	calls := q.Calls()
	if calls == nil {
		if len(struck) > 0 {
			return "", refused("approval.struck", "approval %s is about one call: no row of it can be struck out", q.ID)
		}
		return "", nil
	}
	for i, n := range struck {
		if n < 1 || n > len(calls) || i > 0 && n <= struck[i-1] {
			return "", refused("approval.struck", "the rows to strike out are numbers from 1 to %d, each once, in order", len(calls))
		}
	}
	if len(struck) == len(calls) {
		return "", refused("approval.struck", "a yes without any call is a no: answer no")
	}
	var leaves [][]byte
	for i, c := range calls {
		if !slices.Contains(struck, i+1) {
			leaves = append(leaves, canonical(c))
		}
	}
	return fmt.Sprintf("sha256:%x", [tlog.HashSize]byte(treeHash(leaves))), nil
}

func treeHash(leaves [][]byte) tlog.Hash {
	if len(leaves) == 1 {
		return tlog.RecordHash(leaves[0])
	}
	k := 1 << (bits.Len(uint(len(leaves)-1)) - 1) // the largest power of two below the number of leaves
	return tlog.NodeHash(treeHash(leaves[:k]), treeHash(leaves[k:]))
}

// struck returns the rows that the first yes struck out. Every further yes strikes out the same.
func (q asked) struck() []int {
	if len(q.yes) == 0 {
		return nil
	}
	return q.yes[0].said.Struck
}

// Row is one held call of a question, as it is shown.
type Row struct {
	Number  int // from 1
	Title   string
	Preview []string // what it would do, redacted as its result
	Fields  []Field
	Struck  bool
}

// Rows returns the held calls of a question in order; nil for any other question.
func (q Question) Rows() (rows []Row) {
	for i, c := range q.Calls() {
		var one struct {
			Capability, Mode, Key string
			Danger                int
			Args                  json.RawMessage
			Preview               []string
		}
		_ = json.Unmarshal(c, &one) // it was parsed strictly before
		r := Row{Number: i + 1, Preview: one.Preview, Struck: slices.Contains(q.struck, i+1),
			Title: fmt.Sprintf("%s (%s, danger %d)", name(one.Capability), name(one.Mode), one.Danger)}
		if len(one.Args) > 0 && string(one.Args) != "{}" {
			walk(jsontext.NewDecoder(bytes.NewReader(one.Args)), "", func(path string, v jsontext.Value) {
				r.Fields = append(r.Fields, field(path, v))
			})
		}
		if one.Key != "" {
			r.Fields = append(r.Fields, Field{Path: "(idempotency key)", Value: cut(one.Key)})
		}
		rows = append(rows, r)
	}
	return rows
}

// Striking returns the question with some of its rows struck out, as Show marks them.
func (q Question) Striking(rows []int) Question {
	q.struck = rows
	return q
}

// showRows writes the held calls. Every line that is not waldo's starts with a bar.
func (q Question) showRows(b *strings.Builder, rows []Row) {
	fmt.Fprintf(b, "The program collected these %d calls (%d bytes, %s).\n"+
		"What they hold is its claim. A preview is of that call alone, before the others:\n",
		len(rows), len(q.Args), q.ArgsDigest)
	for _, r := range rows {
		mark := ""
		if r.Struck {
			mark = " STRUCK OUT"
		}
		fmt.Fprintf(b, "%d. %s%s\n", r.Number, r.Title, mark)
		for _, f := range r.Fields {
			fmt.Fprintf(b, "  | %s = %s\n", f.Path, f.Value)
			if f.Note != "" {
				fmt.Fprintf(b, "  |   (%s)\n", f.Note)
			}
		}
		for _, l := range r.Preview {
			fmt.Fprintf(b, "  | > %s\n", upTo(l, maxNote))
		}
	}
}

// NameRows names rows by their numbers.
func NameRows(numbers []int) string {
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "), "[]")
	switch len(numbers) {
	case 0:
		return "no row"
	case 1:
		return "row " + text
	}
	return "rows " + text
}

// StruckIn returns the rows that a signed message strikes out, as a record of the log has it.
func StruckIn(signed json.RawMessage) []int {
	var s signedAnswer
	_ = json.Unmarshal(signed, &s) // an unsigned answer has none
	return s.Struck
}

// NeedIn returns how many approvers must agree, as the signed message of a record of the log has it; at least 1.
func NeedIn(signed json.RawMessage) int {
	var s signedAnswer
	_ = json.Unmarshal(signed, &s) // an unsigned answer has none
	return max(s.Need, 1)
}
