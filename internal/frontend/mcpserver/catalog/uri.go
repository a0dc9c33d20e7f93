package catalog

import "strings"

// own is how the URI of a resource begins that waldo shows: waldo://SERVER/URI, with the server's own
// URI as it stands behind the server's name. Nothing is encoded, so that a template stays a template.
const own = "waldo://"

// Outer returns the URI under which a resource of a server is shown. No two are shown as the same.
func (c *Catalogue) Outer(server, uri string) string { return outer(c.o.Plain, server, uri) }

// Inner returns the server of a shown URI and the server's own URI.
func (c *Catalogue) Inner(uri string) (server, own string, ok bool) { return inner(c.o.Plain, uri) }

// outer leaves the URIs of the plain server as they are, but for those that look like waldo's.
func outer(plain, server, uri string) string {
	if server == plain && !strings.HasPrefix(uri, own) {
		return uri
	}
	return own + server + "/" + uri
}

func inner(plain, uri string) (server, bare string, ok bool) {
	rest, ours := strings.CutPrefix(uri, own)
	if !ours {
		return plain, uri, plain != "" && uri != ""
	}
	server, bare, ok = strings.Cut(rest, "/")
	if server == plain && !strings.HasPrefix(bare, own) {
		return "", "", false // it is shown in another way
	}
	return server, bare, ok && server != "" && bare != ""
}
