package facts

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"testing"
	"testing/quick"
)

// What AppendJSON writes is what encoding/json does, whatever is in the facts: no member is forgotten.
func TestAppendJSON(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for n := range 200 {
		v, ok := quick.Value(reflect.TypeFor[Facts](), random)
		if !ok {
			t.Fatal("no facts")
		}
		f := v.Interface().(Facts)
		switch n {
		case 0:
			f = New()
		case 1:
			f = Facts{}
		}
		f.Usage.WallMS, f.Usage.CPUMS = float64(random.Intn(1e9))/1000, float64(n)
		want, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		got := f.AppendJSON(nil)
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		if err := json.Unmarshal(want, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}
