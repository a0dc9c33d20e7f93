package egress

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

	"waldo/internal/model/hostrule"
)

type portKind uint8

const (
	isAny  portKind = iota // detected by the client's first bytes
	isHTTP                 // plain HTTP and nothing else
	isTLS                  // TLS and nothing else
)

// kindOf is the protocol that a port number implies.
func kindOf(port uint16) portKind {
	switch port {
	case 80, 8080:
		return isHTTP
	case 443, 8443:
		return isTLS
	}
	return isAny
}

// methods are those of HTTP, each with the blank that follows it, and the first words of HTTP/2.
var methods = []string{"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "CONNECT ", "OPTIONS ", "TRACE ", "PATCH ", "PRI "}

// blanks are the characters that servers, also lenient ones, skip before a request (RFC 9112 §2.2).
const blanks = " \t\v\f\r\n"

// firstWords tells by the first bytes of a client what it speaks.
func firstWords(b []byte) portKind {
	if len(b) > 0 && b[0] == recordHandshake {
		return isTLS
	}
	b = bytes.ReplaceAll(bytes.TrimLeft(b, blanks), []byte("\t"), []byte(" "))
	for _, m := range methods {
		if n := min(len(b), len(m)); n > 0 && string(b[:n]) == m[:n] {
			return isHTTP
		}
	}
	line, _, whole := bytes.Cut(b, []byte("\n"))
	if whole && bytes.Contains(line, []byte(" HTTP/")) {
		return isHTTP
	}
	return isAny
}

// TLS constants (RFC 8446 §4.1.2, §5.1; RFC 6066 §3; RFC 9849).
const (
	recordHandshake = 22
	clientHello     = 1
	extServerName   = 0
	extECH          = 0xfe0d
	maxHello        = 64 << 10
)

// serverName reads the name that a TLS client asks for off its first records. more says that the
// bytes end before the message does.
func serverName(b []byte) (name string, more bool, why *Refusal) {
	var msg []byte
	for rest := b; ; {
		if len(msg) >= 4 {
			n := int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3])
			if msg[0] != clientHello || n > maxHello {
				return "", false, refuse("tls", "the first message is not a ClientHello")
			}
			if len(msg) >= 4+n {
				name, why = helloName(msg[4 : 4+n])
				return name, false, why
			}
		}
		if len(rest) < 5 {
			return "", true, tooLong(b)
		}
		n := int(binary.BigEndian.Uint16(rest[3:]))
		if rest[0] != recordHandshake || rest[1] != 3 || n == 0 || n > 1<<14 {
			return "", false, refuse("tls", "the first bytes are not TLS")
		}
		if len(rest) < 5+n {
			return "", true, tooLong(b)
		}
		msg, rest = append(msg, rest[5:5+n]...), rest[5+n:]
	}
}

func tooLong(b []byte) *Refusal {
	if len(b) > 2*maxHello {
		return refuse("tls", "the ClientHello does not end")
	}
	return nil
}

// helloName reads the server name in a ClientHello.
func helloName(b []byte) (string, *Refusal) {
	bad := refuse("tls", "the ClientHello is malformed")
	r := reader{b: b}
	r.take(2 + 32)
	r.vector(1) // session id
	r.vector(2) // cipher suites
	r.vector(1) // compression methods
	exts := reader{b: r.vector(2)}
	if r.bad || len(r.b) > 0 {
		return "", bad
	}
	name, seen := "", false
	for len(exts.b) > 0 && !exts.bad {
		kind := exts.number(2)
		body := exts.vector(2)
		if kind == extECH {
			return "", refuse("tls.ech", "an encrypted ClientHello may be for another host")
		}
		if kind != extServerName {
			continue
		}
		list := reader{b: body}
		names := reader{b: list.vector(2)}
		form, text := names.number(1), string(names.vector(2))
		if seen || list.bad || names.bad || len(list.b) > 0 || len(names.b) > 0 || form != 0 {
			return "", bad
		}
		name, seen = text, true
	}
	if exts.bad {
		return "", bad
	}
	if !seen {
		return "", refuse("tls.name", "TLS without a server name")
	}
	lower := strings.ToLower(name)
	if _, err := netip.ParseAddr(lower); err == nil || hostrule.BadName(lower) != "" && lower != "localhost" {
		return "", refuse("tls.name", "the server name is not a host name")
	}
	return lower, nil
}

// reader takes fields off bytes; bad is set when they are not there.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) number(size int) (n int) {
	for _, c := range r.take(size) {
		n = n<<8 | int(c)
	}
	return n
}

func (r *reader) vector(size int) []byte { return r.take(r.number(size)) }
