#pragma once

namespace dllm {

/// The source for python3 -c. Its argument selects one of the two ends of a conversation. Descriptors: 3 is the source,
/// 4 the socket to the other end, 5 (only the test's) receives the verdict.
inline constexpr const char* kSandboxRunner = R"python(
import builtins, json, os, socket, sys, types
if hasattr(sys, 'set_int_max_str_digits'): sys.set_int_max_str_digits(0)
MOST = 1 << 26
KINDS = {'list': list, 'tuple': tuple, 'set': set, 'frozenset': frozenset}

def pack(x):
    if x is None or isinstance(x, bool): return x
    for plain in (int, float, str):
        if isinstance(x, plain): return plain(x) if type(x) is not plain else x
    for name, kind in KINDS.items():
        if isinstance(x, kind): return [name, *map(pack, x)]
    if isinstance(x, dict): return ['dict', *([pack(k), pack(v)] for k, v in x.items())]
    if isinstance(x, (bytes, bytearray)): return ['bytes', bytes(x).hex()]
    if isinstance(x, complex): return ['complex', x.real, x.imag]
    raise TypeError('a %s cannot be handed to the test' % type(x).__name__)

def unpack(x):
    if not isinstance(x, list): return x
    kind, rest = x[0], x[1:]
    if kind == 'dict': return {unpack(k): unpack(v) for k, v in rest}
    if kind == 'bytes': return bytes.fromhex(rest[0])
    if kind == 'complex': return complex(*rest)
    return KINDS[kind](map(unpack, rest))

def last_line(error):
    text = str(error).strip().split('\n')[-1][:200]
    return type(error).__name__ + (': ' + text if text else '')

def read_source():
    with open(3, 'rb') as file: return file.read().decode('utf-8', 'surrogateescape')

def module():
    main = sys.modules['__main__'] = types.ModuleType('__main__')
    return main.__dict__

def run_program():
    channel = socket.socket(fileno=4).makefile('rwb')
    def send(*message):
        channel.write(json.dumps(message).encode() + b'\n')
        channel.flush()
    names = module()
    try:
        exec(compile(read_source(), 'program.py', 'exec'), names)
    except SystemExit:
        raise
    except BaseException as error:
        return send('failed', last_line(error))
    plain = {}
    for name, value in list(names.items()):
        if name.startswith('__') or callable(value): continue
        try: plain[name] = pack(value)
        except Exception: pass
    send('ready', [n for n, v in names.items() if callable(v) and not n.startswith('__')], plain)
    for line in channel:
        name, positional, named = json.loads(line)
        positional, named = unpack(positional), unpack(named)
        try:
            value = names[name](*positional, **named)
            reply = ['value', pack(value), pack(list(positional))]
        except BaseException as error:
            reply = ['raised', type(error).__name__, str(error)]
        send(*reply)

class Ended(BaseException): pass
class Failed(BaseException): pass

def run_test():
    channel = socket.socket(fileno=4).makefile('rwb')
    def receive():
        line = channel.readline(MOST)
        if not line.endswith(b'\n'): raise Ended()
        return json.loads(line)
    def caller(name):
        def call(*positional, **named):
            try:
                channel.write(json.dumps([name, pack(positional), pack(named)]).encode() + b'\n')
                channel.flush()
            except OSError:
                raise Ended()
            kind, *rest = receive()
            if kind == 'raised':
                known = getattr(builtins, str(rest[0]), None)
                known = known if isinstance(known, type) and issubclass(known, Exception) else RuntimeError
                raise known(str(rest[1]))
            for mine, theirs in zip(positional, unpack(rest[1])):
                if isinstance(mine, list) and isinstance(theirs, list): mine[:] = theirs
                elif isinstance(mine, (dict, set)) and isinstance(theirs, type(mine)):
                    mine.clear()
                    mine.update(theirs)
            return unpack(rest[0])
        call.__name__ = name
        return call
    verdict, status = '', 0
    try:
        kind, *rest = receive()
        if kind != 'ready': raise Failed(str(rest[0])[:300])
        names = module()
        for name, value in rest[1].items(): names[name] = unpack(value)
        for name in rest[0]: names[str(name)] = caller(str(name))
        exec(compile(read_source(), 'test.py', 'exec'), names)
        verdict = 'passed'
    except Ended:
        status = 3
    except Failed as error:
        verdict = 'failed ' + str(error)
    except BaseException as error:
        verdict = 'failed ' + last_line(error)
    os.write(5, verdict.encode('utf-8', 'replace')[:4000])
    os._exit(status)

run_test() if sys.argv[1] == 'test' else run_program()
)python";

}  // namespace dllm
