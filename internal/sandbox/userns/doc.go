// Package userns chooses the users that sandboxes have outside, and explains refusals of user namespaces.
package userns
