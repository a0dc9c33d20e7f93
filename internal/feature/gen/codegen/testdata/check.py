# Parses, inspects, imports and calls generated modules. Arguments: the folder, the manifest. Prints faults as JSON.
import ast, asyncio, importlib, json, os, re, sys, types

root, manifest = sys.argv[1], json.load(open(sys.argv[2], encoding="utf-8"))
faults, files, made = [], 0, []
NAMES = {"Any", "Dict", "List", "Literal", "Optional", "TypedDict", "Union", "str", "int", "float", "bool", "TOOL",
         "SERVER_URL", "call", "call_sync", "result", "call_tool", "call_tool_sync", "base_url", "params", "__doc__",
         "TOOLS", "__all__", "load", "tool", "import_module", "__name__"}
OURS = re.compile(r"(_needed_|_optional_)?(Params|Result)\w*\Z")
for folder, _, names in os.walk(root):
    for name in names:
        if not name.endswith(".py"):
            continue
        path = os.path.join(folder, name)
        text = open(path, encoding="utf-8", newline="").read()
        files += 1
        try:
            tree = ast.parse(text)
            compile(tree, path, "exec")
        except (SyntaxError, ValueError) as e:
            faults.append("%s: %s" % (path, e))
            continue
        if name == "_client.py":
            continue
        if name != "__init__.py" and not ast.get_docstring(tree):
            faults.append(path + ": no docstring")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id not in NAMES and not OURS.match(node.id):
                faults.append("%s: the name %s" % (path, node.id))
            if isinstance(node, ast.Import) or isinstance(node, ast.ImportFrom) and node.module not in ("typing", "_client", "importlib"):
                faults.append("%s: an import" % path)
            if isinstance(node, (ast.JoinedStr, ast.Lambda, ast.comprehension)):
                faults.append("%s: %s" % (path, type(node).__name__))


class Result:
    def __await__(self):
        return self
        yield


class At:
    def __init__(self, *path):
        self.path = path

    def __getitem__(self, name):
        return At(*self.path, name)

    def __call__(self, params):
        made.append([*self.path, params])
        return Result()


fake = sys.modules["waldo"] = types.ModuleType("waldo")
fake.servers, fake.search_tools = At(), None
sys.path.insert(0, root)


async def calls():
    for s in manifest:
        package = importlib.import_module("servers." + s["folder"])
        if sorted(package.TOOLS) != sorted(c["tool"] for c in s["calls"]):
            faults.append("%s: the index lists other tools" % s["folder"])
        for c in s["calls"]:
            module = package.load(c["tool"])
            for how in ("call", "call_sync"):
                made.clear()
                r = getattr(module, how)("", module.Params(**c["args"]))
                if how == "call":
                    await r
                if made != [[s["server"], c["tool"], c["args"]]]:
                    faults.append("%s: called %r" % (c, made))

try:
    asyncio.run(calls())
except BaseException as e:
    import traceback
    faults.append(traceback.format_exc()[-500:])
print(json.dumps({"files": files, "faults": faults[:20]}))
