package job

import (
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Question returns the name of a DNS question (RFC 1035), in lower case and without the last dot. It returns an empty
// name for other messages.
func Question(b []byte) string {
	var p dnsmessage.Parser
	if h, err := p.Start(b); err != nil || h.Response {
		return ""
	}
	q, err := p.Question()
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSuffix(strings.ToLower(q.Name.String()), "."), "\uFFFD")
}
