package egress

import (
	"net/http"
	"slices"
	"strings"
)

// askWhole takes out of a request what asks for another answer than the whole one, as it is. An echo of a
// secret in an answer in pieces, or packed, would not be seen.
func askWhole(h http.Header) {
	for name := range h {
		if asksOther(strings.ToLower(canonical(name))) {
			delete(h, name)
		}
	}
	h.Set("Accept-Encoding", "identity")
}

// asksOther reports whether a header requests a part of an answer (Range, Request-Range, X-Amz-Range), another
// encoding or character set, a delta (RFC 3229), or one against a dictionary (RFC 9842). Content-Range and a copy
// source's range describe the request itself.
func asksOther(name string) bool {
	if strings.Contains(name, "range") {
		return name != "content-range" && !strings.HasSuffix(name, "-source-range")
	}
	if slices.Contains([]string{"a-im", "sec-websocket-extensions"}, name) || strings.HasPrefix(name, "want-") {
		return true
	}
	return slices.ContainsFunc([]string{"accept-encoding", "accept-charset", "accept-transfer-encoding", "dictionary"},
		func(part string) bool { return strings.Contains(name, part) })
}

// packed reports whether an answer is encoded, or the frames of a websocket are.
func packed(h http.Header) bool {
	return len(h.Values("Sec-Websocket-Extensions")) > 0 ||
		slices.ContainsFunc(h.Values("Content-Encoding"), func(e string) bool {
			return e != "" && !strings.EqualFold(e, "identity")
		})
}

// partial reports whether an answer is a part or a delta. A Content-Range that counts no bytes, with another status,
// describes rows of a list, as in PostgREST.
func partial(resp *http.Response) bool {
	if resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusIMUsed {
		return true
	}
	says := func(name, word string) bool {
		return strings.Contains(strings.ToLower(strings.Join(resp.Header.Values(name), ",")), word)
	}
	return says("Content-Range", "bytes") || says("Content-Type", "byteranges")
}
