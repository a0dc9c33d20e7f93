// Package attack tries to escape from the sandbox. Every test does an action outside, where it must succeed. It then
// does it inside, where it must fail with the exact refusal. testdata/probes has the same probes as separate
// programs; make probes runs them all.
package attack
