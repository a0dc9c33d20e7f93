package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/core/policy"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/template"
)

// keeping is a driver with a pool.
type keeping struct {
	*fake
	kept  sandbox.Profile
	count int
}

func (k *keeping) Keep(p sandbox.Profile, n int) { k.kept, k.count = p, n }

// TestExpectTemplates: sandboxes are prepared with the template and the environment of the contract.
func TestExpectTemplates(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "python"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := &keeping{fake: &fake{}}
	r := worker(k.fake)
	r.Drivers = map[string]sandbox.Driver{"namespace": k}
	r.Means.(*means).template = func(ctx context.Context, c contract.Contract) (sandbox.Template, template.Config, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a session waits for a template that is not stored")
		}
		if c.Template != "data" {
			return sandbox.Template{}, template.Config{}, errors.New("not stored")
		}
		return sandbox.Template{Name: "data@sha256:0", Packages: dir},
			template.Config{Env: []string{"PYTHONPATH=" + sandbox.PythonAt}}, nil
	}
	expect := func(change func(*contract.Contract)) {
		t.Helper()
		_, d := allowed(t, "run_python", `{"code":""}`, change)
		d.Effect = policy.Allow
		k.kept, k.count = sandbox.Profile{}, -1
		if err := r.Expect(d, 2); err != nil {
			t.Fatal(err)
		}
	}
	expect(func(c *contract.Contract) { c.Template = "data" })
	if k.count != 2 || k.kept.Template.Name != "data@sha256:0" || len(k.kept.Mounts) != 1 ||
		k.kept.Mounts[0].Target != sandbox.PythonAt {
		t.Errorf("%d %+v", k.count, k.kept)
	}
	expect(func(c *contract.Contract) {})
	if k.count != 2 || k.kept.Template.Name != "host" || len(k.kept.Mounts) != 0 {
		t.Errorf("control: %d %+v", k.count, k.kept)
	}
	expect(func(c *contract.Contract) { c.Template = "gone" })
	if k.count != 0 {
		t.Errorf("%d sandboxes of a template that is not stored", k.count)
	}
	expect(func(c *contract.Contract) { c.Template, c.Input = "data", dir })
	if k.count != 0 {
		t.Errorf("%d sandboxes with a folder of one job", k.count)
	}
}
