package sandbox

import (
	"encoding/json"
	"math"
	"time"
)

// limits is the stored and displayed form of Limits: the keys and units of facts.
type limits struct {
	Wall   float64 `json:"wall_ms"`
	CPU    float64 `json:"cpu_ms"`
	Memory int64   `json:"memory_bytes"`
	Pids   int64   `json:"pids"`
	Files  int64   `json:"files"`
	Disk   int64   `json:"disk_bytes"`
	Inodes int64   `json:"inodes"`
	Output int64   `json:"output_bytes"`
}

// MarshalJSON writes limits as facts do.
func (l Limits) MarshalJSON() ([]byte, error) {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return json.Marshal(limits{ms(l.Wall), ms(l.CPU), l.Memory, l.Pids, l.Files, l.Disk, l.Inodes, l.Output})
}

// UnmarshalJSON reads the output of MarshalJSON. A missing key is zero, and no sandbox starts with a zero
// limit.
func (l *Limits) UnmarshalJSON(b []byte) error {
	var f limits
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	d := func(ms float64) time.Duration { return time.Duration(math.Round(ms * float64(time.Millisecond))) }
	*l = Limits{d(f.Wall), d(f.CPU), f.Memory, f.Pids, f.Files, f.Disk, f.Inodes, f.Output}
	return nil
}
