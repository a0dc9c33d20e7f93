package threatmodel

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"waldo/internal/config"
	"waldo/internal/config/starter"
)

var update = flag.Bool("update", false, "write the committed threat models")

// TestProfiles: the reach of each shipped profile is the committed one, in whichever folder the profile is.
func TestProfiles(t *testing.T) {
	for _, p := range starter.Profiles() {
		text, _ := starter.Like(p, "project")
		cfg, problems := config.Parse(filepath.Join(t.TempDir(), p+".yaml"), text)
		if len(problems) > 0 {
			t.Fatal(p, problems)
		}
		file, got := filepath.Join("testdata", p+".md"), Document(cfg, nil)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		reach, ok := Committed(string(want))
		if !ok {
			t.Fatalf("%s has no list of reach", file)
		}
		if wider, _ := Compare(reach, Reach(cfg)); len(wider) > 0 {
			t.Errorf("%s reaches more than %s: %+v", p, file, wider)
		}
		if got != string(want) {
			t.Errorf("%s is not its threat model of today: review it, then run with -update", file)
		}
		if len(reach) > 0 { // control: one fact less than it has is a wider reach
			if wider, _ := Compare(reach[1:], Reach(cfg)); len(wider) == 0 {
				t.Errorf("%s: a permission more was not found", p)
			}
		}
	}
}
