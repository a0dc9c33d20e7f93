// Package id makes waldo's ids: a prefix for the kind, then 128 bits in lower-case base32. The first 48 bits are
// milliseconds since 1970, so ids sort by time. The other 80 come from crypto/rand and cannot be guessed.
package id

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// Kind is the prefix of an id: the kind of thing that it names.
type Kind string

// The kinds of thing that have ids.
const (
	Call      Kind = "c_"
	Decision  Kind = "d_"
	Approval  Kind = "a_"
	Sandbox   Kind = "s_"
	Session   Kind = "n_"
	Workspace Kind = "w_"
	Record    Kind = "e_"
	Snapshot  Kind = "p_"
	Program   Kind = "g_"
	Delivery  Kind = "h_"
	Task      Kind = "t_"

	Delegation Kind = "dg_"
)

// alphabet is that of RFC 4648 with the digits first, so that text sorts as the bits do.
var alphabet = base32.NewEncoding("234567abcdefghijklmnopqrstuvwxyz").WithPadding(base32.NoPadding)

// New returns a fresh id of the kind, such as "c_aarx3kd6m…": the prefix and 26 letters.
func New(k Kind) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // never fails: crypto/rand ends the process instead
	return string(k) + alphabet.EncodeToString(b[:])
}

// Of returns the id of the kind that stands for 16 bytes. It is as hard to guess as they are.
func Of(k Kind, b [16]byte) string { return string(k) + alphabet.EncodeToString(b[:]) }

// Is reports whether s has the form of an id of the kind.
func Is(k Kind, s string) bool {
	body, ok := strings.CutPrefix(s, string(k))
	if !ok || len(body) != 26 {
		return false
	}
	_, err := alphabet.DecodeString(body)
	return err == nil
}
