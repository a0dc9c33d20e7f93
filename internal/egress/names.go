package egress

type portKind uint8

const (
	isAny  portKind = iota // told by what the client says first
	isHTTP                 // plain HTTP and nothing else
	isTLS                  // TLS and nothing else
)

// kindOf is what a port is for.
func kindOf(port uint16) portKind {
	switch port {
	case 80, 8080:
		return isHTTP
	case 443, 8443:
		return isTLS
	}
	return isAny
}
