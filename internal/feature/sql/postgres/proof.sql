-- The examination of a role. $role is its oid. Each check returns privilege, object, the role that has it, and the
-- statement that takes it away. "me" in each check are the roles that $role is or can become, and PUBLIC (0).

-- check: attributes
SELECT a.name, 'role ' || r.rolname, r.rolname, format('ALTER ROLE %I NO%s', r.rolname, a.name)
FROM pg_roles r, LATERAL (VALUES ('SUPERUSER', rolsuper, 1), ('CREATEDB', rolcreatedb, 2), ('CREATEROLE', rolcreaterole, 3),
  ('REPLICATION', rolreplication, 4), ('BYPASSRLS', rolbypassrls, 5)) a(name, has, place)
WHERE pg_has_role($role, r.oid, 'MEMBER') AND a.has
ORDER BY r.oid <> $role, a.place, r.rolname;

-- check: memberships
SELECT 'membership', 'role ' || r.rolname, u.rolname, format('REVOKE %I FROM %I', r.rolname, u.rolname)
FROM pg_roles r JOIN pg_roles u ON u.oid = $role
WHERE pg_has_role($role, r.oid, 'MEMBER') AND r.oid < 16384 AND r.rolname ~ '^pg_'
  AND r.rolname NOT IN ('pg_read_all_data', 'pg_monitor', 'pg_read_all_settings', 'pg_read_all_stats', 'pg_stat_scan_tables')
ORDER BY 2;

-- check: rights to give away
WITH me AS (SELECT oid, rolname::text AS name FROM pg_roles WHERE pg_has_role($role, oid, 'MEMBER')),
granted AS (
  SELECT c.oid::regclass::text AS name, CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END AS word, c.relacl AS acl
    FROM pg_class c
  UNION ALL SELECT quote_ident(nspname), 'SCHEMA ', nspacl FROM pg_namespace
  UNION ALL SELECT quote_ident(datname), 'DATABASE ', datacl FROM pg_database WHERE datname = current_database()
  UNION ALL SELECT oid::regprocedure::text, 'ROUTINE ', proacl FROM pg_proc)
SELECT 'ADMIN OPTION', 'role ' || r.rolname, me.name, format('REVOKE ADMIN OPTION FOR %I FROM %I', r.rolname, me.name)
FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid JOIN me ON me.oid = m.member WHERE m.admin_option
UNION ALL SELECT 'GRANT OPTION for ' || x.privilege_type, lower(g.word) || g.name, me.name,
  format('REVOKE GRANT OPTION FOR %s ON %s%s FROM %I', x.privilege_type, g.word, g.name, me.name)
FROM granted g, LATERAL aclexplode(g.acl) x JOIN me ON me.oid = x.grantee WHERE x.is_grantable
UNION ALL SELECT 'GRANT OPTION for ' || x.privilege_type, format('column %s.%I', a.attrelid::regclass, a.attname), me.name,
  format('REVOKE GRANT OPTION FOR %s (%I) ON %s FROM %I', x.privilege_type, a.attname, a.attrelid::regclass, me.name)
FROM pg_attribute a, LATERAL aclexplode(a.attacl) x JOIN me ON me.oid = x.grantee WHERE x.is_grantable
ORDER BY 2, 1 LIMIT 100;

-- check: ownership
SELECT 'ownership', coalesce(pg_describe_object(d.classid, d.objid, 0), 'object ' || d.objid), r.rolname,
  format('REASSIGN OWNED BY %I TO postgres', r.rolname)
FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid
WHERE d.deptype = 'o' AND d.refclassid = 'pg_authid'::regclass AND pg_has_role($role, r.oid, 'MEMBER')
  AND d.dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
ORDER BY 2 LIMIT 100;

-- check: tables and sequences
WITH me AS (SELECT oid, rolname::text AS name FROM pg_roles WHERE pg_has_role($role, oid, 'MEMBER') UNION ALL SELECT 0, 'PUBLIC')
SELECT x.privilege_type, CASE c.relkind WHEN 'S' THEN 'sequence ' WHEN 'f' THEN 'foreign table ' ELSE 'table ' END
  || c.oid::regclass, me.name, format('REVOKE %s ON %s FROM %s', x.privilege_type,
  CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END || c.oid::regclass,
  CASE me.oid WHEN 0 THEN 'PUBLIC' ELSE quote_ident(me.name) END)
FROM pg_class c, LATERAL aclexplode(coalesce(c.relacl,
  acldefault((CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END)::"char", c.relowner))) x JOIN me ON me.oid = x.grantee
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  AND (x.privilege_type NOT IN ('SELECT', 'USAGE') OR c.relkind = 'S' AND x.privilege_type = 'USAGE'
    OR c.relkind = 'f')
  AND NOT (c.oid = 'pg_catalog.pg_settings'::regclass AND x.privilege_type = 'UPDATE' AND me.oid = 0)
ORDER BY 2, 1 LIMIT 100;

-- check: columns
WITH me AS (SELECT oid, rolname::text AS name FROM pg_roles WHERE pg_has_role($role, oid, 'MEMBER') UNION ALL SELECT 0, 'PUBLIC')
SELECT x.privilege_type, format('column %s.%I', c.oid::regclass, a.attname), me.name,
  format('REVOKE %s (%I) ON %s FROM %s', x.privilege_type, a.attname, c.oid::regclass,
  CASE me.oid WHEN 0 THEN 'PUBLIC' ELSE quote_ident(me.name) END)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid, LATERAL aclexplode(a.attacl) x JOIN me ON me.oid = x.grantee
WHERE a.attacl IS NOT NULL AND (x.privilege_type <> 'SELECT' OR c.relkind = 'f')
ORDER BY 2, 1 LIMIT 100;

-- check: schemas, the database, tablespaces, foreign servers and wrappers, large objects
WITH me AS (SELECT oid, rolname::text AS name FROM pg_roles WHERE pg_has_role($role, oid, 'MEMBER') UNION ALL SELECT 0, 'PUBLIC'),
objects AS (
  SELECT 'schema ' AS kind, quote_ident(nspname) AS name, 'SCHEMA' AS word, coalesce(nspacl, acldefault('n', nspowner)) AS acl,
    ARRAY['CREATE'] AS bad FROM pg_namespace
  UNION ALL SELECT 'database ', quote_ident(datname), 'DATABASE', coalesce(datacl, acldefault('d', datdba)), ARRAY['CREATE']
    FROM pg_database WHERE datname = current_database()
  UNION ALL SELECT 'tablespace ', quote_ident(spcname), 'TABLESPACE', coalesce(spcacl, acldefault('t', spcowner)),
    ARRAY['CREATE'] FROM pg_tablespace
  UNION ALL SELECT 'foreign server ', quote_ident(srvname), 'FOREIGN SERVER', coalesce(srvacl, acldefault('S', srvowner)),
    ARRAY['USAGE'] FROM pg_foreign_server
  UNION ALL SELECT 'foreign-data wrapper ', quote_ident(fdwname), 'FOREIGN DATA WRAPPER',
    coalesce(fdwacl, acldefault('F', fdwowner)), ARRAY['USAGE'] FROM pg_foreign_data_wrapper
  UNION ALL SELECT 'large object ', oid::text, 'LARGE OBJECT', coalesce(lomacl, acldefault('L', lomowner)), ARRAY['UPDATE']
    FROM pg_largeobject_metadata
)
SELECT x.privilege_type, o.kind || o.name, me.name, format('REVOKE %s ON %s %s FROM %s', x.privilege_type, o.word, o.name,
  CASE me.oid WHEN 0 THEN 'PUBLIC' ELSE quote_ident(me.name) END)
FROM objects o, LATERAL aclexplode(o.acl) x JOIN me ON me.oid = x.grantee
WHERE x.privilege_type = ANY (o.bad) ORDER BY 2, 1 LIMIT 100;

-- check: large objects without privileges
SELECT 'UPDATE', 'every large object', 'the setting lo_compat_privileges', 'ALTER SYSTEM SET lo_compat_privileges = off'
WHERE current_setting('lo_compat_privileges', true) = 'on';

-- check: parameters of the server since 150000
WITH me AS (SELECT oid, rolname::text AS name FROM pg_roles WHERE pg_has_role($role, oid, 'MEMBER') UNION ALL SELECT 0, 'PUBLIC')
SELECT x.privilege_type, 'parameter ' || p.parname, me.name, format('REVOKE %s ON PARAMETER %I FROM %s', x.privilege_type,
  p.parname, CASE me.oid WHEN 0 THEN 'PUBLIC' ELSE quote_ident(me.name) END)
FROM pg_parameter_acl p, LATERAL aclexplode(p.paracl) x JOIN me ON me.oid = x.grantee ORDER BY 2, 1 LIMIT 100;

-- check: functions that act with another's rights, in a language without limits, beyond the database, or reserved
WITH me AS (SELECT oid, rolname::text AS name FROM pg_roles WHERE pg_has_role($role, oid, 'MEMBER') UNION ALL SELECT 0, 'PUBLIC'),
open AS (SELECT DISTINCT n.oid FROM pg_namespace n, LATERAL aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) x
  JOIN me ON me.oid = x.grantee WHERE x.privilege_type = 'USAGE'),
why AS (
  SELECT p.oid, CASE
    WHEN p.prosecdef THEN 'SECURITY DEFINER '
    WHEN NOT l.lanpltrusted AND l.lanname NOT IN ('internal', 'c') THEN l.lanname || ' '
    WHEN e.extname IN ('dblink', 'http', 'pg_net', 'pg_background', 'pg_cron', 'adminpack', 'aws_s3', 'aws_lambda',
      'oracle_fdw', 'plproxy') THEN e.extname || ' '
    WHEN i.objoid IS NOT NULL THEN 'reserved ' END AS word
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    LEFT JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
    LEFT JOIN pg_extension e ON e.oid = d.refobjid
    LEFT JOIN pg_init_privs i ON i.classoid = 'pg_proc'::regclass AND i.objoid = p.oid AND i.objsubid = 0
      AND NOT EXISTS (SELECT FROM aclexplode(i.initprivs) a WHERE a.grantee = 0
        OR a.grantee < 16384 AND a.grantee IN (SELECT oid FROM me WHERE name ~ '^pg_'))
  WHERE p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
)
SELECT 'EXECUTE', w.word || 'function ' || p.oid::regprocedure, me.name, format('REVOKE EXECUTE ON ROUTINE %s FROM %s',
  p.oid::regprocedure, CASE me.oid WHEN 0 THEN 'PUBLIC' ELSE quote_ident(me.name) END)
FROM pg_proc p JOIN why w ON w.oid = p.oid, LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) x
  JOIN me ON me.oid = x.grantee
WHERE w.word IS NOT NULL AND p.pronamespace IN (SELECT oid FROM open) ORDER BY 2 LIMIT 100;
