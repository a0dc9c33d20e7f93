package health

import (
	"strings"
	"testing"
)

// TestStanding: only an account without a login shell counts as waldo's own; whatever is not known gets the weaker
// sentence.
func TestStanding(t *testing.T) {
	const accounts = "root:x:0:0::/root:/bin/bash\nwaldo:x:990:990::/var/lib/waldo:/usr/sbin/nologin\n" +
		"ann:x:1000:1000::/home/ann:/bin/bash\nzero:x:0:0::/:/usr/sbin/nologin\ncut:x:991\n"
	for uid, own := range map[int]bool{0: false, 990: true, 1000: false, 991: false, 4711: false} {
		if got := strings.HasPrefix(standing(uid, accounts), "waldo has a user of its own"); got != own {
			t.Errorf("uid %d: %t", uid, got)
		}
	}
	if got := standing(990, ""); !strings.HasPrefix(got, "your agent runs as you") {
		t.Errorf("no accounts: %s", got)
	}
}
