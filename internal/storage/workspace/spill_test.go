package workspace

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSpill(t *testing.T) {
	w := fresh(t)
	name, err := w.Spill("../../crm.list customers", "json", []byte("{}"))
	if err != nil || !strings.HasPrefix(name, "______crm_list_customers-") || !strings.HasSuffix(name, ".json") {
		t.Fatalf("%q %v", name, err)
	}
	f, err := w.Get(Spill, name)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(f); string(b) != "{}" {
		t.Errorf("%q", b)
	}
	_ = f.Close()
	other, err := w.Spill("x", "json", nil)
	if err != nil || other == name {
		t.Errorf("%q %v", other, err)
	}
	if files, err := w.List(Output, 10); err != nil || len(files) > 0 {
		t.Errorf("kept results are no output of code: %v %v", files, err)
	}
	text := []byte(`{"code":"open('/workspace/spill/` + name + `'); open('` + name + `')"}`)
	if got, err := w.Spilled(text); err != nil || !slices.Equal(got, []string{name}) {
		t.Errorf("named: %q %v", got, err)
	}
	gone := strings.Replace(name, "crm", "xyz", 1)
	if got, err := w.Spilled([]byte(gone + " /workspace/spill/*")); err != nil || len(got) > 0 {
		t.Errorf("absent: %q %v", got, err)
	}
}

// TestSpillBounds fills the folder by bytes, by number and by age. The oldest go, the newest stays.
func TestSpillBounds(t *testing.T) {
	w := fresh(t)
	if _, err := w.Spill("x", "txt", make([]byte, MaxSpill+1)); !errors.Is(err, ErrTooMuch) {
		t.Errorf("one above the bound: %v", err)
	}
	keep := func(age time.Duration, size int) string {
		t.Helper()
		name, err := w.Spill("x", "txt", bytes.Repeat([]byte("x"), size))
		if err == nil {
			when := time.Now().Add(-age)
			err = os.Chtimes(filepath.Join(w.Path(Spill), name), when, when)
		}
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(w.Path(Spill), name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	day, hour, half := keep(spillFor+time.Minute, 1), keep(time.Hour, MaxSpill/2), keep(time.Minute, MaxSpill/4)
	if there(day) || !there(hour) || !there(half) {
		t.Errorf("by age: %v %v %v", there(day), there(hour), there(half))
	}
	if last := keep(0, MaxSpill/2); there(hour) || !there(half) || !there(last) {
		t.Errorf("by bytes: %v %v %v", there(hour), there(half), there(last))
	}
	if err := w.age(time.Now(), MaxSpill, 1); err != nil || there(half) {
		t.Errorf("by number: %v %v", err, there(half))
	}
	if files, err := w.List(Spill, 10); err != nil || len(files) != 1 {
		t.Errorf("%v %v", files, err)
	}
}
