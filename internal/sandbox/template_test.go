package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTemplateValidate(t *testing.T) {
	for why, c := range map[string]struct {
		t  Template
		ok bool
	}{
		"the host's":                         {Template{Name: "host"}, true},
		"a root":                             {Template{Name: "dir:/x", Dir: "/x"}, true},
		"packages beside the host's":         {Template{Name: "data@sha256:0", Packages: "/x"}, true},
		"no name":                            {Template{Packages: "/x"}, false},
		"another than the host's without it": {Template{Name: "data"}, false},
		"the host's with packages":           {Template{Name: "host", Packages: "/x"}, false},
		"a root with packages":               {Template{Name: "data", Dir: "/x", Packages: "/y"}, false},
	} {
		if err := c.t.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", why, err)
		}
	}
}

func TestTemplateFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "python"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := Template{Name: "data", Packages: dir}.Folders()
	if len(got) != 1 || got[0].Source != filepath.Join(dir, "python") || got[0].Target != PythonAt ||
		got[0].Writable || !got[0].Template {
		t.Errorf("%+v", got)
	}
	if got := (Template{Name: "host"}).Folders(); len(got) != 0 {
		t.Errorf("the host's: %+v", got)
	}
}
