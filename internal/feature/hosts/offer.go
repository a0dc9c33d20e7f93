package hosts

import (
	"io"
	"path/filepath"

	"waldo/internal/feature/hosts/agenthosts"
	"waldo/internal/model/display"
)

// tellImports offers waldo import for each configuration of an agent host, in a project's folder or of this user, that
// has a server other than waldo. It leaves out files that cannot be read: waldo import says why.
func tellImports(w io.Writer, dir string) {
	env, _ := agenthosts.Here() // without a home folder only those of the project
	for _, h := range agenthosts.All() {
		file := h.Project(dir)
		if name, err := filepath.Rel(dir, file); err == nil && file != "" && hasServers(h, file, dir) {
			display.Fprintf(w, "  waldo import %-16s # adds the servers of %s, which is here already\n", name, h.Title)
		}
		if env.Home != "" && hasServers(h, h.User(env), "") {
			display.Fprintf(w, "  waldo import --from %-9s # adds this user's servers of %s\n", h.Name, h.Title)
		}
	}
}

func hasServers(h *agenthosts.Host, file, project string) bool {
	f, err := agenthosts.Open(file, project)
	if err != nil || !f.Exists {
		return false
	}
	servers, _ := h.Servers(file, f.Text)
	for _, m := range servers {
		if m.Name != "waldo" && !h.Own(m) {
			return true
		}
	}
	return false
}
