"""Pieces of code in six languages and the first function tree-sitter finds in each with RepoQA's queries.

    python scbench_functions.py FIXTURES

Writes FIXTURES/scbench/functions.json: [{lang, code, start, end}], bytes; start = -1 where there is none. The code is ours: plain
functions as a model would repeat them, and the corners of each query (methods, pointers, overloads, nested ones, texts with brackets).
"""
import json
import sys

import tree_sitter
import tree_sitter_cpp
import tree_sitter_go
import tree_sitter_java
import tree_sitter_python
import tree_sitter_rust
import tree_sitter_typescript

LANGUAGES = {
    "python": (tree_sitter_python.language, "(function_definition name: (_)) @fdef"),
    "java": (tree_sitter_java.language, "(method_declaration name: (_)) @fdef"),
    "typescript": (tree_sitter_typescript.language_typescript, "(function_declaration name: (_)) @fdef"),
    "rust": (tree_sitter_rust.language, "(function_item name: (_)) @fdef"),
    "cpp": (tree_sitter_cpp.language, "(function_definition declarator: (function_declarator declarator: (identifier))) @fdef"),
    "go": (tree_sitter_go.language, "(function_declaration name: (_)) @fdef"),
}

CODE = {}

CODE["python"] = ['''
def add(a, b):
    return a + b
''', '''
import os

LIMIT = 3

# counts lines
def count_lines(path: str, *, skip=("#", ")")) -> int:
    """Counts lines.

    def not_this(): pass
    """
    n = 0
    with open(path) as f:
        for line in f:
            if not line.startswith(skip):
                n += 1
    return n

print(count_lines(os.devnull))
''', '''
class Stack:
    size: int = 0

    @property
    def top(self):
        if not self.items:
            raise IndexError("def nothing():")
        return self.items[-1]

    def push(self, x): self.items.append(x)
''', '''
@decorator(key="x")
@other
async def fetch(url,
                retries=3,
                headers={"a": lambda x: x}):
    for _ in range(retries):
        try:
            return await get(url)
        except (IOError,
                ValueError):
            continue

        finally:
            pass
x = 1
''', '''
def one(): return {"a": 1}
def two(): return 2
''', '''
x = [f(y) for y in range(10)]
y = """
def fake():
    pass
"""
def real(a):
	if a:
		return 1
	return \'\'\'two
lines\'\'\'
''', '''
def outer(n):
    def inner(k):
        return k * n

    # the last remark
    return inner
    # after it
# outside
z = 2
''', '''
def joined(a, b):
    total = a + \\
b
    return (a,
b,
)
''', '''
no functions = here
''', '''
if True:
    def deep(self, x: "int") -> "Dict[str, int]":
        yield x

    value = 3
''', '''
def raw(path=r"C:\\\\dir\\\\"):
    s = f"{path!r:>{10}} # not a comment"
    t = b'\\x00' + rb"(("
    return s, t
''', '''
class A(object):
    pass

async def later(self):
    async with self.lock:
        await self.do(x=1)  # done
''', '''
def documented():
    """Only a text."""
''', '''
def middle(a):  # why not
    b = a
# far left
    # again
    return b
    # end
# out
''', '''
def cut_off(a, b):
    for x in a:
        if x in (
            b,
''', '''
Here is the function:
def prose(self):
    return self.x
''', '''
def typed[T](x: T) -> T:
    match x:
        case {"k": v} if v:
            return v
        case _:
            return x


''']

CODE["java"] = ['''
public int add(int a, int b) {
    return a + b;
}
''', '''
package org.example;

import java.util.*;

/** Holds things. void fake() {} */
public class Holder<T extends Comparable<T>> extends Base implements Iface<T> {
    private final Map<String, List<T>> map = new HashMap<>();
    private static int count = compute(3);

    public Holder(int size) {
        super(size);
        init(size);
    }

    static {
        count = next(1);
    }

    @Override
    @SuppressWarnings({"unchecked", "x)("})
    public synchronized <U> List<U> convert(final T[] in, Function<? super T, ? extends U> f) throws IOException, Failure {
        List<U> out = new ArrayList<>();
        for (int i = 0; i < in.length; i++) {
            out.add(f.apply(in[i]));
        }
        return out;
    }
}
''', '''
interface Shape {
    double PI = 3.14;
    double area(double scale);
    default String name() { return "shape"; }
}
''', '''
private static boolean isOpen(char c) {
    return c == '{' || c == '(' || c == '"' || c == '\\'';
}
''', '''
@Test
void parses() {
    String s = "}";
    assertEquals("{", s); // }
    /* } */
}
''', '''
public enum Colour {
    RED(1) { @Override int code() { return 1; } },
    BLUE(2);
    private final int n;
    Colour(int n) { this.n = n; }
    int code() { return n; }
}
''', '''
class A {
    int x;
    A() { x = 1; }
    class B {
        B(int y) { run(y); }
        protected final int[] values()[] { return null; }
    }
}
''', '''
public abstract class Task {
    protected abstract void run(Context ctx) throws Exception;

    void stop() { running = false; }
}
''', '''
int y = 3;
String text = """
    void fake() { return; }
    """;
java.util.List<int[]> build(String... names) {
    Runnable r = () -> { go(); };
    return switch (names.length) { case 0 -> null; default -> make(names); };
}
''', '''
public record Point(int x, int y) {
    public Point {
        if (x < 0) throw new IllegalArgumentException("x");
    }
    double length() { return Math.sqrt(x * x + y * y); }
}
''', '''
foo(bar);
return baz(qux);
''', '''
public @interface Marker {
    String value() default "x";
}
''', '''
/* first */ public static void main(final String[] args) throws InterruptedException {
    new Thread(new Runnable() {
        public void run() { System.out.println("x"); }
    }).start();
}
''']

CODE["java"] += ['''
public void cutOff(int a) {
    if (a > 0) {
        run(a);
''', '''
public Holder(int size) {
    this.size = size;
}
''', '''
Holder(int size) {
    this.size = size;
}
''', '''
class X {
    private X(int size) { this(size, 1); }
}
''', '''
@Override public String toString() { return "x"; }
private X(int size) { this(size, 1); }
''', '''
    /**
     * Doc.
     */
    public static <T extends Comparable<? super T>> Optional<Map.Entry<T, Integer>> max(Collection<T> c) {
        return c.stream().map(x -> Map.entry(x, 1)).max((a, b) -> { return a.getKey().compareTo(b.getKey()); });
    }
''']

CODE["typescript"] = ['''
function add(a: number, b: number): number {
  return a + b;
}
''', '''
import { x } from "./x";

export async function load<T extends { id: string }>(
  url: string,
  options: { retries?: number } = {},
): Promise<{ data: T; ok: boolean }> {
  const re = /[{"']\\/}/g;
  const s = `a ${url + `}${options}`} {`;
  return { data: JSON.parse(s.replace(re, "")), ok: true };
}
''', '''
export default function main() {
  console.log('}');
}
''', '''
const f = function named(x) { return x; };
const g = (x: number) => { return x * 2; };
function after() { return f(1); }
''', '''
class Box {
  private n = 1;
  method(): void {
    function inner(k: string): k is "a" { return k === "a"; }
    inner("b");
  }
}
''', '''
function over(a: string): string;
function over(a: number): number;
function over(a: any): any { return a; }
''', '''
function* gen() { yield 1; }
const h = async function () { };
''', '''
declare function ext(a: string): void;
declare module "m" {
  function inside(): void;
}
''', '''
export const useThing = (props: Props) => {
  const [a, setA] = useState<string | null>(null);
  return a;
};
''', '''
// function fake() {}
function first(cb: (x: number) => { y: number }, ...rest: any[]): cb is never | { z: 1 } {
  if (a / b > c / d) { return /}/.test("x"); }
  return rest.map((r) => ({ ...r })) as any;
}
''', '''
namespace N {
  export function helper(this: Window, a = "(", b?: [number, string]): asserts a is string {
    throw new Error(`bad: ${a}`);
  }
}
''', '''
if (x) {
  y();
} else {
  z();
}
function last(): Array<() => void> {
  return [];
}
''', '''
const x = cond ? function t() { return 1 } : null
function u({ a, b }: { a: number; b: number }) {
  return a + b
}
''', '''
export abstract class Service<T> {
  constructor(private readonly repo: Repo<T>) {}
  async find(id: string): Promise<T | undefined> {
    return this.repo.get(id);
  }
}
''']

CODE["typescript"] += ['''
function cutOff(a: number): number {
  if (a) {
    return 1;
''', '''
private method(a: string): void {
    this.x = a;
}
''', '''
async function all<A, B>(xs: A[], f: (a: A) => Promise<B>): Promise<B[]> {
  return await Promise.all(xs.map(async (x) => f(x)));
}
''']

CODE["rust"] = ['''
fn add(a: i32, b: i32) -> i32 {
    a + b
}
''', '''
use std::collections::HashMap;

/// Doc fn fake() {}
#[inline]
#[cfg(test)]
pub(crate) async unsafe fn load<'a, T: Into<String> + 'a, const N: usize>(x: &'a [T; N], f: impl Fn(&T) -> bool) -> Result<HashMap<String, Vec<u8>>, Box<dyn Error>>
where
    T: Clone,
{
    let c = '{';
    let s = "}\\"";
    let r = r#"raw " } "#;
    Ok(HashMap::new())
}
''', '''
pub struct P<'a> { name: &'a str }

impl<'a> P<'a> {
    pub const fn new(name: &'a str) -> Self { Self { name } }
    fn other(&self) {}
}
''', '''
trait Shape {
    fn area(&self) -> f64;
    fn name(&self) -> String { String::from("shape") }
}
''', '''
macro_rules! make {
    ($n:ident) => { fn $n() -> u8 { 1 } };
}
make!(one);
extern "C" fn callback(code: i32) -> i32 { code }
''', '''
extern "C" {
    fn puts(s: *const u8) -> i32;
}
static X: fn(i32) -> i32 = twice;
fn twice(x: i32) -> i32 { x * 2 }
''', '''
fn main() {
    let v = vec![1, 2, 3];
    println!("{:?} {{", v);
    /* outer /* inner } */ } */
    'outer: loop { if v.len() != 3 { break 'outer; } }
    fn nested() {}
}
''', '''
mod tests {
    use super::*;
    #[test]
    fn works() {
        assert_eq!(b'\\'', 39);
        let t = ('a', '\\n', '\\u{1F600}');
    }
}
''', '''
let x = |a: i32| a + 1;
''', '''
pub fn generic<F>(f: F) -> impl Iterator<Item = u8> where F: Fn(u8) -> u8 {
    (0..10).map(f)
}
''', '''
pub(in crate::a) fn scoped() {}
''', '''
unsafe impl Send for X {}
impl Drop for X {
    default fn drop(&mut self) { unsafe { free(self.0) } }
}
''', '''
enum E { A { f: fn(u8) -> u8 }, B }
const fn size() -> [u8; 4] { [0; { 2 + 2 }] }
''']

CODE["rust"] += ['''
    pub fn cut_off(&mut self, a: usize) -> Option<&T> {
        if a > 0 {
            return None;
''', '''
impl<T> Iterator for It<T> where T: Clone {
    type Item = T;
    #[must_use]
    fn next(&mut self) -> Option<Self::Item> {
        match self.v.get(self.i) { Some(x) if x != '}' => { self.i += 1; Some(x.clone()) } _ => None }
    }
}
''']

CODE["cpp"] = ['''
int add(int a, int b) {
  return a + b;
}
''', '''
#include <vector>
#define MAX(a, b) \\
  ((a) > (b) ? (a) : (b))

namespace util {

template <typename T, typename = std::enable_if_t<(sizeof(T) > 4)>>
static inline std::vector<T> repeat(const T &x, std::size_t n = MAX(1, 2)) noexcept(true) {
  std::vector<T> v(n, x);
  auto f = [&](int i) { return v[i]; };
  return v;
}

} // namespace util
''', '''
void Foo::bar(int x) {
  if (x) { baz(x); }
}
int plain(void) { return 0; }
''', '''
class Foo {
 public:
  Foo() : n_(1) {}
  int n() const { return n_; }
 private:
  int n_;
};
bool operator==(const Foo &a, const Foo &b) { return a.n() == b.n(); }
auto make() -> Foo { return Foo(); }
''', '''
char *name(int i) { return names[i]; }
const std::string &ref(int i) { return strings[i]; }
double value(int i) { return values[i]; }
''', '''
int declared(int a);
extern int global;
static const char *table[] = {"{", "}", "("};
struct Point { int x, y; } origin = {0, 0};
unsigned long long hash(const char *s) {
  unsigned long long h = 5381;
  while (*s) h = h * 33 + static_cast<unsigned char>(*s++);
  return h;
}
''', '''
extern "C" {
int c_entry(int argc, char **argv) {
  const char *raw = R"x(
} int fake() { )x";
  char c = '}';
  int big = 1'000'000;
  return big;
}
}
''', '''
template <>
int special<int>(int a) { return a; }
template <class T>
T generic(T a) { return a; }
''', '''
Foo::Foo(int a, int b) : a_(a), b_{b} { init(); }
Foo::~Foo() {}
''', '''
[[nodiscard]] constexpr auto square(int x) noexcept -> int { return x * x; }
''', '''
#ifdef A
static void one(void) { run(1); }
#else
static void two(void) { run(2); }
#endif
''', '''
struct S {
  void method() { go(); }
  friend int outside(S s) { return 1; }
};
int main(int argc, char *argv[]) try {
  return 0;
} catch (...) {
  return 1;
}
''', '''
enum class E : int { A = 1, B };
std::pair<int, std::map<int, int>> both(int a) { return {a, {}}; }
''', '''
static int
split_line(struct ctx *c,
           int (*cb)(void *, int),
           void *user)
{
    /* } */
    return cb(user, c->n);
}
''', '''
TEST(Suite, Name) {
  EXPECT_EQ(1, 1);
}
''']

CODE["cpp"] += ['''
void cut_off(int a) {
  if (a) {
    run(a);
''', '''
class B : public A<int> {
 public:
  virtual ~B() = default;
  void m() { x(); }
  explicit B(int a) : A<int>(a), v_{1, 2} {}
  struct C { C() {} };
};
''', '''
int guarded(int a) try {
  return a;
} catch (...) {
  return 1;
}
''', '''
static Status Table::Read(const Options& o) { return Status::OK(); }
void DBImpl::Run() {
  MutexLock l(&mutex_);
  for (int i = 0; i < 3; i++) { go(i); }
}
''', '''
void run(std::function<void(int)> f = [](int x) { use(x); }, int a[] = {}) {
  f(1);
}
''', '''
inline bool ends(std::string_view s) { return s.size() > 1 && s[0] < s[1]; }
''']

CODE["go"] = ['''
func add(a, b int) int {
	return a + b
}
''', '''
package main

import "fmt"

// func fake() {}
type T struct{ n int }

func (t *T) Method(x int) error {
	return nil
}

func Map[K comparable, V any](m map[K]V, f func(V) (V, error)) (out map[K]V, err error) {
	s := `raw } {`
	r := '}'
	fmt.Println("{", s, r)
	return
}
''', '''
var handler = func(w int) { run(w) }

func main() {
	go func() {
		defer done()
	}()
}
''', '''
func any() interface{} {
	return struct{ a int }{1}
}
''', '''
func external(x int) int

func second() {}
''', '''
type I interface {
	Do(x int) error
}
const x = 3
''', '''
func (s Server) Serve() { s.run() }
func (s Server) run()   {}
''', '''
func multi(
	a int,
	b ...string,
) (
	int,
	error,
) {
	switch {
	case a > 1:
		return a, nil
	}
	return 0, nil
}
''', '''
func typed() map[string]struct{ A int } {
	return nil
}
''', '''
func ptr(x *int) *struct{} { if x == nil { return nil }; return &struct{}{} }
''', '''
x := compute(func(a int) int { return a })
if x { y() }
''', '''
func init() {
	for i := 0; i < 3; i++ { /* } */ }
	label:
	goto label
}

func later() chan<- int { return nil }
''', '''
//go:noinline
func annotated(f func() func() int) func(int) (string, error) {
	return nil
}
''']

CODE["java"] += ['''
@interface Limits {
    int low();
    int high();
}
class User {
    @Limits(low = 1, high = 2) int range() { return 1; }
}
''']
CODE["cpp"] += ['''
class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex &) = delete;
  int Read() LOCKED(mu_) { return n_; }
};
''', '''
int Read() LOCKED(mu_) { return n_; }
''']
CODE["go"] += ['''
func cutOff(a int) error {
	if a > 0 {
		return nil
''', '''
type Pool[T any] struct{ items []T }

func NewPool[T any](n int, mk func() T) *Pool[T] {
	p := &Pool[T]{items: make([]T, 0, n)}
	return p
}
''']


def first_function(lang, code):
    make, query = LANGUAGES[lang]
    language = tree_sitter.Language(make())
    root = tree_sitter.Parser(language).parse(code).root_node
    nodes = tree_sitter.QueryCursor(tree_sitter.Query(language, query)).captures(root).get("fdef", [])
    if not nodes:
        return -1, -1
    node = min(nodes, key=lambda n: (n.start_byte, -n.end_byte))
    return node.start_byte, node.end_byte


def main():
    rows = []
    for lang, pieces in CODE.items():
        for piece in pieces:
            code = piece[1:]
            start, end = first_function(lang, code.encode())
            rows.append({"lang": lang, "code": code, "start": start, "end": end})
    with open(sys.argv[1] + "/scbench/functions.json", "w") as f:
        json.dump(rows, f, indent=1)
        f.write("\n")
    print(len(rows), "pieces,", sum(r["start"] >= 0 for r in rows), "with a function")


if __name__ == "__main__":
    main()
