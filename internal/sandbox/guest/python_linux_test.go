package guest_test

import (
	"strings"
	"testing"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox/guest"
)

func py(code string) guest.Script {
	return guest.Script{Lang: guest.Python, Name: "agent.py", Code: []byte(code), Servers: []string{"crm", "print"}}
}

func TestPython(t *testing.T) {
	for _, row := range []struct {
		why, code, want string
		exit            int
	}{
		{"a plain script runs as main", "print(__name__, __file__)", "__main__ agent.py", 0},
		{"its exit code is its own", "import sys; print('x'); sys.exit(7)", "x", 7},
		{"a message for exit is an error", "raise SystemExit('no')", "", 1},
		{"an uncaught error is exit 1", "1/0", "", 1},
		{"what follows on stdin is the script's", "print(input())", "hello", 0},
		{"exit is there without site", "print(1); exit(3)", "1", 3},
		{"await works at the top", "import asyncio\nawait asyncio.sleep(0)\nprint('ok')", "ok", 0},
		{"run_async returns the result", "async def f(): return 5\nprint(run_async(f()))", "5", 0},
		{"run_async in an awaiting script runs before the end",
			"import asyncio\nasync def f():\n  await asyncio.sleep(0.05); print('late')\nrun_async(f())\n" +
				"await asyncio.sleep(0)\nprint('body')", "body\nlate", 0},
		{"a field is an attribute and a key",
			"r = servers.crm.get(id=7)\nprint(r.id, r['id'], r.owner.email, r['owner']['tags'][1])", "7 7 [EMAIL_1] b", 0},
		{"a field wins over a method of str", "print(servers.crm.get(id=7).title, servers.crm.get(id=7).items)",
			"Ada [1, 2, 3]", 0},
		{"a result is text", "r = servers.crm.text()\nprint(r, isinstance(r, str), r + '!', r.upper(), len(r))",
			"plain words True plain words! PLAIN WORDS 11", 0},
		{"its text is read by json", "import json\nprint(json.loads(servers.crm.list())['total'])", "3", 0},
		{"rows iterate, index and count",
			"r = servers.crm.list()\nprint([x['n'] for x in r if x.Status == 'pending'], len(r), r[1].n, r.total)",
			"[1, 3] 3 2 3", 0},
		{"a wrapped list is a list", "r = crm.array()\nprint([x.a for x in r], r[0].a)", "[1, 2] 1", 0},
		{"a result can be awaited", "r = await crm.get({'id': 7})\nprint(r.title)", "Ada", 0},
		{"without await it is still the result",
			"import asyncio\nawait asyncio.sleep(0)\nr = crm.get(id=7)\nprint(r.title, r['id'], isinstance(r, str))",
			"Ada 7 True", 0},
		{"a call that was given up is no failure",
			"import asyncio\nt = asyncio.create_task(crm.slow(n=1))\nawait asyncio.sleep(0)\nt.cancel()\nprint('end')", "end", 0},
		{"a server of the catalogue is a global, never over a builtin", "print(crm)", "<server crm>", 0},
		{"a call from seed 003's layout",
			"from servers.crm.echo import call, Params\nfrom servers.crm import SERVER_URL\nasync def f(): " +
				"return await call(SERVER_URL, Params(a=1))\nprint(run_async(f()).a)", "1", 0},
		{"tools can be imported from their server", "from servers.crm import echo\nprint(echo(a=2).a)", "2", 0},
		{"the old names are aliases",
			"from mcp_codegen.runtime import search_tools, workspace, run_async\nfrom mcp_codegen.runner.privacy import " +
				"scrub\nprint(scrub('a@b.example'))", "[EMAIL]", 0},
		{"search gives references that load",
			"t = search_tools('echo')[0]\nprint(t, t.load().call('u', t.load().Params(a=3)).a)",
			"ToolRef(server='crm', tool='echo', summary='does crm.echo') 3", 0},
		{"search at detail name says only names",
			"print([(t.name, t.description) for t in search_tools('echo', detail='name')])", "[('crm.echo', '')]", 0},
		{"a denial is an exception with its reasons",
			"try: crm.delete(id=1)\nexcept Denied as e: print(e, e.decision_id, e.reasons[0].code, 'file' in e.reasons[0])",
			"crm.delete: contract.deny: never d_1 contract.deny False", 0},
		{"an unknown tool is denied by the pipeline",
			"import waldo\ntry: crm.nothing()\nexcept waldo.Denied as e: print(e.reasons[0].code)", "contract.absent", 0},
		{"a question names its approval and can be repeated",
			"try: crm.ask(x=1)\nexcept Waiting as e: print(e.approval_id, crm.ask(x=1, waldo_approval=e.approval_id).done)",
			"a_9 True", 0},
		{"a tool that fails is an exception",
			"try: crm.fails()\nexcept ToolError as e: print(type(e).__name__, e, e.result.text)",
			"ToolError crm.fails: no such customer no such customer", 0},
		{"waldo's own failure says nothing of its insides",
			"try: crm.broken()\nexcept ToolError as e: print(e, e.decision_id)",
			"waldo failed; its operator can see why d_2", 0},
		{"arguments that do not fit say so", "try: crm.get(id='seven')\nexcept ToolError as e: print(e.reasons[0].code, e)",
			"args.schema crm.get: args.schema: id must be a number", 0},
		{"a positional argument that is no object is refused here",
			"try: crm.get(7)\nexcept TypeError as e: print('refused')", "refused", 0},
		{"secrets and personal data leave text",
			"print(scrub('mail a.b@c.example or 555-123-4567, ssn 123-45-6789, card 4111 1111 1111 1111, password: hunter2'))",
			"mail [EMAIL] or [PHONE], ssn [SSN], card [CREDIT_CARD], password: [REDACTED]", 0},
		{"numbers that are no personal data stay", "print(scrub('order 1234567 of 2026-11-20, 12:30, v1.2.3.4, 1000000'))",
			"order 1234567 of 2026-11-20, 12:30, v1.2.3.4, 1000000", 0},
		{"scrub walks through objects", "print(scrub({'api_key': 'k', 'n': 1, 'list': ['a@b.example']}))",
			"{'api_key': '[REDACTED]', 'n': 1, 'list': ['[EMAIL]']}", 0},
		{"numbers keep their digits", "print(crm.echo(n=9007199254740993, s='\\u2028\\x00')['n'])", "9007199254740993", 0},
		{"the workspace writes what it is given",
			"workspace.root='out'\nworkspace.write('a/b.json', [{'k': 'é'}]); workspace.write('t.txt','x'); " +
				"workspace.write('.workspace/z','y')\nprint(workspace.read_json('a/b.json')[0].k, workspace.read('t.txt'), " +
				"workspace.list())", "é x ['a/b.json', 't.txt', 'z']", 0},
		{"a path above the workspace is refused",
			"for p in ('/etc/x', '../x', 'a/../../x'):\n  try: workspace.write(p, ''); print('wrote')\n  except ValueError: " +
				"print('refused')", "refused\nrefused\nrefused", 0},
		{"main can be pickled", "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)",
			"A", 0},
		{"a child process cannot speak for the script",
			"import os, sys\ncrm.get(id=1)\npid = os.fork()\nif pid == 0:\n  try: crm.get(id=2)\n  except ToolError as e: " +
				"print('refused', flush=True)\n  os._exit(0)\nos.wait()", "refused", 0},
		{"dir lists servers and tools", "print(dir(servers), dir(servers.crm)[:4], dir(crm) == dir(servers['crm']))",
			"['crm'] ['array', 'ask', 'broken', 'create_issue'] True", 0},
		{"help describes a tool", "help(servers.crm.get)", "Help on Tool in module waldo:\n\n<tool crm.get>\n    does crm.get\n    " +
			"and more", 0},
		{"help of a server and of no tool", "print(servers.crm.__doc__[:18], servers.__doc__, crm.none.__doc__, sep='\\n')",
			"Tools: array, ask,\nServers: crm\ncrm.none is no tool that this program sees: dir(servers) lists servers, " +
				"search_tools finds tools", 0},
	} {
		t.Run(row.why, func(t *testing.T) { same(t, run(t, &desk{}, py(row.code), "hello\n"), row.exit, row.want) })
	}
}

func TestPythonTracebacksShowTheScriptAlone(t *testing.T) {
	for _, row := range []struct{ why, code, want string }{
		{"a plain error", "def f():\n  return 1/0\nf()",
			"Traceback (most recent call last):\n  File \"agent.py\", line 3, in <module>\n    f()\n  File \"agent.py\", " +
				"line 2, in f\n    return 1/0\n           ~^~\nZeroDivisionError: division by zero"},
		{"an error on a last line without newline", "print(nothing())",
			"Traceback (most recent call last):\n  File \"agent.py\", line 1, in <module>\n    print(nothing())\n" +
				"          ^^^^^^^\nNameError: name 'nothing' is not defined"},
		{"a syntax error", "x = = 1", "  File \"agent.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax"},
		{"an error after await", "import asyncio\nasync def f():\n  raise ValueError('x')\nawait f()",
			"Traceback (most recent call last):\n  File \"agent.py\", line 4, in <module>\n    await f()\n" +
				"  File \"agent.py\", line 3, in f\n    raise ValueError('x')\nValueError: x"},
	} {
		t.Run(row.why, func(t *testing.T) {
			r := run(t, nil, py(row.code), "")
			got := strings.Replace(strings.TrimRight(r.stderr, "\n"), "    ~^^\n", "", 1) // Python 3.13 marks a line that is one call
			if r.exit != 1 || got != row.want {
				t.Errorf("exit %d, stderr:\n%s\nwant:\n%s", r.exit, got, row.want)
			}
		})
	}
	r := run(t, &desk{}, py("crm.fails()"), "")
	if strings.Contains(r.stderr, "<waldo>") || strings.Contains(r.stderr, "<string>") ||
		!strings.Contains(r.stderr, `"agent.py", line 1`) {
		t.Errorf("a failed call:\n%s", r.stderr)
	}
}

func TestPythonCallsRunTogether(t *testing.T) {
	for why, code := range map[string]string{
		"gathered": "import asyncio\nr = await asyncio.gather(*[crm.slow(n=i) for i in range(10)])\nprint(len(r), r[9].ok)",
		"as tasks": "import asyncio\nts = [asyncio.create_task(crm.slow(n=i)) for i in range(10)]\nprint(len(ts), " +
			"(await ts[9]).ok)\nfor t in ts: await t",
		"begun all": "import asyncio\nawait asyncio.sleep(0)\nps = [crm.slow(n=i) for i in range(10)]\nprint(len(ps), " +
			"ps[9].ok)",
		"threads": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(10) as p: " +
			"r = list(p.map(lambda i: crm.slow(n=i), range(10)))\nprint(len(r), r[9].ok)",
	} {
		d := &desk{}
		r := run(t, d, py(code), "")
		same(t, r, 0, "10 True")
		if len(d.asked) != 10 || d.most < 8 {
			t.Errorf("%s: %d calls, at most %d at once", why, len(d.asked), d.most)
		}
	}
	d := &desk{}
	same(t,
		run(t, d,
			py("import asyncio\nr = await asyncio.gather(*[crm.get(n=i) for i in range(200)])\nprint(len(r), r[199].id)"), ""),
		0, "200 7")
}

func TestPythonBigArguments(t *testing.T) {
	same(t, run(t, &desk{},
		py("import asyncio\nr = await asyncio.gather(*[crm.echo(s='x' * 3_000_000) for i in range(12)])\n"+
			"print(len(r), len(r[11].s))"), ""), 0, "12 3000000")
	same(t, run(t, &desk{},
		py("from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(16) as p: r = list(p.map(lambda i: "+
			"crm.echo(s='x' * 3_000_000), range(16)))\nprint(len(r))"), ""), 0, "16")
	same(t, run(t, &desk{}, py("try: crm.echo(s='x' * 5_000_000)\nexcept ToolError as e: print(e)"), ""), 0,
		"arguments must be one JSON object of at most 4 MiB")
	same(t, run(t, &desk{},
		js("const r = await Promise.all([...Array(12)].map(() => crm.echo({ s: 'x'.repeat(3e6) }))); console.log(r.length, "+
			"r[11].s.length)"), ""), 0, "12 3000000")
}

// Many threads with long arguments do not wait for each other: who finds room made by another sends.
func TestPythonBigArgumentsOfThreads(t *testing.T) {
	same(t, run(t, &desk{}, py("import threading\ndone = []\n"+
		"def one():\n for _ in range(6): done.append(str(crm.get(s='x' * 2_700_000, later=True)))\n"+
		"ts = [threading.Thread(target=one) for _ in range(8)]\n[x.start() for x in ts]; [x.join() for x in ts]\nprint(len(done))"),
		""), 0, "48")
}

// More threads than calls that can be open at once do not wait for each other, also where their calls are short.
func TestPythonManyThreads(t *testing.T) {
	same(t, run(t, &desk{}, py("import threading\ndone = []\n"+
		"def w(t):\n for k in range(10): done.append(crm.get(id=f'{t}-{k}').id)\n"+
		"ts = [threading.Thread(target=w, args=(t,), daemon=True) for t in range(40)]\n"+
		"[t.start() for t in ts]; [t.join() for t in ts]\nprint(len(done))"), ""), 0, "400")
	same(t, run(t, &desk{}, py("from concurrent.futures import ThreadPoolExecutor\n"+
		"with ThreadPoolExecutor(32) as p: r = list(p.map(lambda i: crm.get(n=i), range(300)))\nprint(len(r))"), ""), 0, "300")
}

// The two worked scripts of seed 003, with the servers of this test.
func TestScriptsOfSeed003(t *testing.T) {
	d := &desk{}
	same(t, run(t, d, py(`from mcp_codegen.runtime import search_tools, workspace, run_async
from servers.crm.get import call as create_pr, Params as PRParams
from servers.crm.echo import call as send_slack, Params as SlackParams
workspace.root = 'out'

async def workflow():
    # Create GitHub PR
    pr = await create_pr(
        'https://github-mcp.example.com',
        PRParams(
            owner='myorg',
            id=7,
        )
    )

    # Notify team on Slack
    await send_slack(
        'https://slack-mcp.example.com',
        SlackParams(
            channel='#deployments',
            text=f"Release PR created: {pr.title}"
        )
    )

    # Write result
    workspace.write('pr_created.json', {'url': pr.title, 'number': pr.id})

run_async(workflow())
print(workspace.read('pr_created.json'))
`), ""), 0, "{\n  \"url\": \"Ada\",\n  \"number\": 7\n}")
	if len(d.asked) != 2 || args(t, d.asked[1]) != `crm.echo {"channel":"#deployments","text":"Release PR created: Ada"}` {
		t.Errorf("%+v", d.asked)
	}
	same(t, run(t, &desk{}, py(`from mcp_codegen.runtime import search_tools, workspace
import json
workspace.root = 'out'

async def process():
    # Search for Google Drive tool
    tools = search_tools("list")
    gdrive_tool = tools[0]

    # Fetch large spreadsheet
    sheet_data = await gdrive_tool.load().call(
        'https://gdrive-mcp.example.com',
        gdrive_tool.load().Params(sheetId='abc123')
    )

    # Process in code (not context)
    records = json.loads(sheet_data)['rows']
    completed = [r for r in records if r['Status'] == 'pending']
    workspace.write('customer_totals.json', {r['n']: 1 for r in completed})

    print(f"Processed {len(records)} orders")
    print(f"Found {len(completed)} completed orders")

run_async(process())
`), ""), 0, "Processed 3 orders\nFound 2 completed orders")
	same(t, run(t, &desk{}, py(`all_rows = await crm.list({'sheetId': 'abc123'})
pending = [row for row in all_rows if row['Status'] == 'pending']
logger.info(f"Processing {len(all_rows)} customers")
for row in all_rows.rows:
    await crm.echo({
        'objectType': 'Lead',
        'data': {
            'Email': row.Status,
        }
    })
print(f"Found {len(pending)} pending orders")
`), ""), 0, "Found 2 pending orders")
}

func TestPythonCallThatNobodyAwaitsIsMade(t *testing.T) {
	d := &desk{}
	r := run(t, d, py("import asyncio\nawait asyncio.sleep(0)\ncrm.echo(a=1)\ncrm.delete(id=2)\nprint('end')"), "")
	same(t, r, 1, "end")
	if len(d.asked) != 2 || !strings.Contains(r.stderr, "crm.delete: contract.deny") {
		t.Errorf("%d calls; stderr %q", len(d.asked), r.stderr)
	}
	if r.effect != facts.None {
		t.Errorf("effect %v", r.effect)
	}
}

// The control of the exit status above: a call that succeeds without await, and a status that the program chose.
func TestPythonCallThatNobodyAwaitsEnds(t *testing.T) {
	same(t, run(t, &desk{}, py("import asyncio\nawait asyncio.sleep(0)\ncrm.echo(a=1)"), ""), 0, "")
	same(t, run(t, &desk{}, py("import asyncio, sys\nawait asyncio.sleep(0)\ncrm.delete(id=2)\nsys.exit(7)"), ""), 7, "")
}

func TestPythonCallsAreChildrenOfTheRun(t *testing.T) {
	d := &desk{}
	run(t, d, py("crm.create_issue('https://x.example', {'title': 't'}, )"), "")
	if len(d.asked) != 1 {
		t.Fatalf("%d calls", len(d.asked))
	}
	c := d.asked[0]
	if c.Channel != "bridge" || c.Parent != "c_run" || c.Depth != 2 || c.Session != "n_1" || c.Principal != "os:1" ||
		args(t, c) != `crm.create-issue {"title":"t"}` {
		t.Errorf("%+v", c)
	}
}

func TestPythonWithoutBridge(t *testing.T) {
	same(t, run(t, nil, py("try: crm.get(id=1)\nexcept ToolError as e: print(e)"), ""), 0, "this run has no tools")
}

func TestPythonLogger(t *testing.T) {
	r := run(t, nil, py("logger.info('user %s', 'a@b.example')\nlogger.error(f'token=abc')"), "")
	if r.stderr != "INFO user [EMAIL]\nERROR token=[REDACTED]\n" {
		t.Errorf("%q", r.stderr)
	}
}

func FuzzScriptArrivesWhole(f *testing.F) {
	f.Add("a", "b c", "print(1)")
	f.Add("", "\n", "é")
	f.Fuzz(func(t *testing.T, name, arg, code string) {
		s := guest.Script{Lang: guest.Python, Name: name, Code: []byte(code), Args: []string{arg}}
		job, err := s.Job()
		if err != nil {
			return
		}
		var a, b int
		all := readAll(t, job)
		if _, err := scan(all[:24], &a, &b); err != nil || len(all) != max(1024, 24+a+b) ||
			strings.Trim(all[24+a+b:], "\x00") != "" {
			t.Fatalf("lengths %q do not add up to %d: %v", all[:24], len(all), err)
		}
		words := strings.Split(all[24:24+a], "\x00")
		if len(words) != 3 || words[2] != arg || (name != "" && words[0] != name) || all[24+a:24+a+b] != code {
			t.Errorf("%q came out as %q", []string{name, arg, code}, words)
		}
	})
}

// TestPythonEnds: the short way out leaves nothing undone that the interpreter's own would do.
func TestPythonEnds(t *testing.T) {
	for _, r := range []struct {
		why, code string
		exit      int
		want      string
	}{
		{"an open file is written out",
			"import os\nif not os.fork(): f = open('left', 'w'); f.write('kept'); raise SystemExit\n" +
				"os.wait(); print(open('left').read())", 0, "kept"},
		{"what a function at exit writes", "import atexit; atexit.register(print, 'at exit')", 0, "at exit"},
		{"a thread is waited for",
			"import threading, time; threading.Thread(target=lambda: (time.sleep(.05), print('late'))).start()", 0, "late"},
		{"what holds itself is let go of", "class A:\n  def __del__(s): print('gone')\na = A(); a.me = a", 0, "gone"},
		{"a number over 255", "import sys; sys.exit(300)", 44, ""},
		{"a number below 0", "import sys; sys.exit(-1)", 255, ""},
		{"a word", "import sys; sys.exit('no')", 1, ""},
		{"True is a number", "import sys; sys.exit(True)", 1, ""},
		{"nothing", "import sys; print(1, end=''); sys.exit()", 0, "1"},
		{"a closed stdout", "import sys; sys.stdout.close(); sys.exit(3)", 3, ""},
	} {
		t.Run(r.why, func(t *testing.T) { same(t, run(t, nil, py(r.code), ""), r.exit, r.want) })
	}
}
