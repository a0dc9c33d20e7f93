package operator

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"waldo/internal/core/audit"
	"waldo/internal/feature/console/site"
)

// TestPictures draws docs/console-light.png and docs/console-dark.png where $WALDO_DOCS names the folder: the start
// page beside the page of a call that a person approved.
func TestPictures(t *testing.T) {
	dir := os.Getenv("WALDO_DOCS")
	if dir == "" {
		t.Skip("set WALDO_DOCS to docs to draw the pictures of the documentation")
	}
	b := startChromium(t)
	l := openLifelike(t)
	key := l.approver("ann", nil, "manager")
	q := l.question("run_shell", `{"command":"./deploy.sh staging --release 2026.47"}`, "oidc:ben@example.com", "n_ben")
	_, waiting := l.desk.ask(q)
	person := l.login(site.RoleApprover)
	c, status, code := person.draft(waiting, "ann", "approve")
	if status == 200 {
		status, code = person.settle(waiting, "approve", c.Draft, key.Get(c.Options.Challenge))
	}
	a, _ := l.desk.ask(q)
	if status != 200 || a == nil || !a.Yes {
		t.Fatalf("%d %s", status, code)
	}
	l.r.Witness = &audit.Witness{Dir: audit.Dir(l.dir)}
	if err := l.r.Answer(l.ctx, q, *a); err != nil {
		t.Fatal(err)
	}
	l.end(q, 4100, a.ApprovalID)
	_, at := l.listen()
	b.enter(l.desk, at, site.RoleApprover)
	for _, theme := range []string{"light", "dark"} {
		whole := image.NewRGBA(image.Rect(0, 0, 1420, 800))
		x := 0
		for _, part := range []struct {
			path  string
			width int
		}{{"/", 400}, {"/calls/" + q.Call.ID, 1020}} {
			b.visit(at + part.path)
			b.look(theme, part.width)
			b.eval(`document.querySelector('.where b').textContent = 'ops-eu-1'; // not those of the machine that draws
				document.querySelector('.where .mono').textContent = '/srv/waldo/waldo.yaml'`)
			shot, err := png.Decode(bytes.NewReader(b.shot()))
			if err != nil {
				t.Fatal(err)
			}
			draw.Draw(whole, image.Rect(x, 0, x+part.width, 800), shot, image.Point{}, draw.Src)
			x += part.width
		}
		draw.Draw(whole, image.Rect(399, 0, 400, 800), image.NewUniform(color.Gray{128}), image.Point{}, draw.Src)
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, fewColours(whole)); err != nil {
			t.Fatal(err)
		}
		if out.Len() > 150<<10 {
			t.Errorf("%s: %d bytes", theme, out.Len())
		}
		if err := os.WriteFile(filepath.Join(dir, "console-"+theme+".png"), out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// fewColours draws a picture with its 256 most used colours.
func fewColours(in *image.RGBA) image.Image {
	count := map[color.RGBA]int{}
	for y := range in.Rect.Dy() {
		for x := range in.Rect.Dx() {
			count[in.RGBAAt(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) })
	var few color.Palette
	for _, c := range all[:min(len(all), 256)] {
		few = append(few, c)
	}
	out, known := image.NewPaletted(in.Rect, few), map[color.RGBA]uint8{}
	for y := range in.Rect.Dy() {
		for x := range in.Rect.Dx() {
			c := in.RGBAAt(x, y)
			i, ok := known[c]
			if !ok {
				i = uint8(few.Index(c))
				known[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	return out
}
