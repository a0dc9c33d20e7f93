// Package attack tries to get out of the box. Every test here does a thing outside, where it must
// succeed, and then inside, where it must fail with the refusal that is named. The probes are the
// same idea as programs of their own (testdata/probes); make probes runs all of them.
package attack
