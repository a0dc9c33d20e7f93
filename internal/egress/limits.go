package egress

import "time"

// Limits hold for everything that one box sends and receives. A zero field takes the default of
// DefaultLimits: a forgotten limit is not no limit.
type Limits struct {
	Conns  int           // at a time
	PerMin int           // new connections in any minute
	Bytes  int64         // both ways, over the life of the box
	Idle   time.Duration // a connection on which nothing moves ends
	Names  int           // different names that are given an address
}

// DefaultLimits are what a box gets whose policy says nothing.
var DefaultLimits = Limits{Conns: 256, PerMin: 6000, Bytes: 16 << 30, Idle: 10 * time.Minute, Names: 1024}

func (l Limits) complete() Limits {
	d := DefaultLimits
	if l.Conns <= 0 {
		l.Conns = d.Conns
	}
	if l.PerMin <= 0 {
		l.PerMin = d.PerMin
	}
	if l.Bytes <= 0 {
		l.Bytes = d.Bytes
	}
	if l.Idle <= 0 {
		l.Idle = d.Idle
	}
	if l.Names <= 0 {
		l.Names = d.Names
	}
	return l
}
