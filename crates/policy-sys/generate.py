# SPDX-License-Identifier: Apache-2.0 OR MIT
import re,sys
import os
os.chdir(os.path.dirname(os.path.abspath(__file__)))
base='../../policy/'
order=['port','bandwidth','pelt','load','weight','fair','sparsemask','steal','group','balance','wake','headroom','lend']
import os
T={'u64':'u64','s64':'i64','u32':'u32','s32':'i32','u8':'u8','bool':'bool'}
def ty(t,ptr,const=False):
    t=t.strip()
    if t.startswith('struct '):
        n=''.join(w.capitalize() for w in t[7:].replace('pl_','',1).split('_'))
        r=n
    else: r=T[t]
    if ptr: r=('*const ' if const else '*mut ')+r
    return r
out=[];fns=[];lay=[];consts=[]
for h in order:
    p=base+h+'.h'
    if not os.path.exists(p): continue
    s=open(p).read()
    if h=='port': continue
    for m in re.finditer(r'((?:/\*(?:[^*]|\*(?!/))*\*/\n)?)struct (pl_\w+) \{\n(.*?)\n\};',s,re.S):
        doc,name,body=m.groups()
        rn=ty('struct '+name,False)
        fields=[]
        body=re.sub(r'/\*(?:[^*]|\*(?!/))*\*/','',body)
        for line in body.split(';'):
            line=re.sub(r'\s+',' ',line.strip())
            if not line: continue
            mm=re.match(r'(struct \w+|\w+) (PL_MEM \*)?(\w+)(\[(\w+(?: - \w+)?)\])?$',line)
            if not mm: print('??',line,file=sys.stderr); continue
            t,ptr,fn,_,arr=mm.groups()
            r=ty(t,bool(ptr))
            if arr:
                n={'PL_SPARSEMASK_PER_CHUNK':'8','PL_CACHE_LINE - PL_SPARSEMASK_PER_CHUNK':'56'}[arr]
                r='[%s; %s]'%(r,n)
            fields.append((fn,r))
        out.append((h,rn,name,fields))
    for m in re.finditer(r'^PL_(?:FN|SUB) ([\w ]+?)(?: PL_MEM)? (\*?)(\w+)\(([^)]*)\)\n\{',s,re.M):
        rt,rp,fn,args=m.groups()
        a=[]
        for x in re.sub(r'\s+',' ',args.replace(' PL_ARENA','')).split(','):
            x=x.strip()
            if x=='void': continue
            mm=re.match(r'(const )?(struct \w+|\w+) ?(PL_MEM )?(\*?)(\w+)$',x)
            c,t,_,ptr,n=mm.groups()
            a.append('%s: %s'%(n if n not in('from','to','type') else n,ty(t,bool(ptr),bool(c))))
        r='' if rt=='void' else ' -> '+ty(rt,bool(rp))
        fns.append((h,'    pub fn %s(%s)%s;'%(fn,', '.join(a),r)))
print(len(out),len(fns),file=sys.stderr)
o=open('src/types.rs','w')
o.write('//! The structs of policy/*.h, field by field. tests/layout.rs compares sizes and offsets with the C compiler\'s;\n//! what the fields mean is said in the headers.\n')
cur=None
for h,rn,name,fields in out:
    if h!=cur: o.write('\n// %s.h\n'%h); cur=h
    o.write('\n#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct %s {\n'%rn)
    for f,r in fields: o.write('    pub %s: %s,\n'%(f,r))
    o.write('}\n')
o.write('\n/// Calls `$m!(c_name, RustType, field, ...)` for every struct: the layout test walks it.\n#[macro_export]\nmacro_rules! for_each_struct {\n    ($m:ident) => {\n')
for h,rn,name,fields in out:
    o.write('        $m!(%s, %s, %s);\n'%(name,rn,', '.join(f for f,_ in fields)))
o.write('    };\n}\n')
f=open('src/functions.rs','w')
f.write('//! The functions of policy/*.h. Every pointer must be valid and not aliased by a live Rust reference during the\n//! call; ranges and errors are documented in the headers.\nuse crate::types::*;\n\nextern "C" {\n')
cur=None
for h,l in fns:
    if h!=cur: f.write('%s    // %s.h\n'%('\n' if cur else '',h)); cur=h
    f.write(l+'\n')
f.write('}\n')
c=open('src/layout.h','w')
c.write('/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */\n/* What the C compiler says of every struct: its size, then the offset of each field, in order. */\n')
c.write('#define PL_LAYOUT_OF(type, field) offsetof(struct type, field)\nstatic const u64 pl_layout_values[] = {\n')
for h,rn,name,fields in out:
    c.write('\tsizeof(struct %s),\n'%name)
    for fl,_ in fields: c.write('\tPL_LAYOUT_OF(%s, %s),\n'%(name,fl))
c.write('};\n')
