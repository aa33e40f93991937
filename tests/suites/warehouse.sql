-- Decision support over the published `lines` of orders; orders, customers, suppliers, products,
-- offers, nations and regions are public.  Tables are joined by commas, their keys in WHERE.
-- Sensitive: quantity, discount, tax, flag.

-- name: pricing summary
SELECT flag, mode, SUM(quantity) AS units, SUM(price) AS base, SUM(price * (100 - discount) / 100) AS net,
       AVG(quantity) AS mean_units, AVG(price) AS mean_price, AVG(discount) AS mean_discount, COUNT(*) AS many
FROM lines WHERE shipped <= DATE '1998-12-01' - INTERVAL 90 DAY
GROUP BY flag, mode ORDER BY flag, mode;

-- name: cheapest supplier of a product
SELECT s.balance, s.supplier, n.nation, p.product_id, p.maker
FROM products p, suppliers s, offers o, nations n, regions r
WHERE p.product_id = o.product_id AND s.supplier_id = o.supplier_id AND p.kind LIKE '%steel'
  AND s.nation_id = n.nation_id AND n.region_id = r.region_id AND r.region = 'europe'
  AND o.supply_cost = (SELECT MIN(i.supply_cost) FROM offers i, suppliers j, nations m, regions q
                       WHERE i.product_id = p.product_id AND j.supplier_id = i.supplier_id
                         AND j.nation_id = m.nation_id AND m.region_id = q.region_id AND q.region = 'europe')
ORDER BY s.balance DESC, n.nation, s.supplier, p.product_id LIMIT 100;

-- name: unshipped orders of largest value
SELECT lines.order_id, SUM(price) AS revenue, placed, priority
FROM customers, orders, lines
WHERE segment = 'farms' AND customers.customer_id = orders.customer_id AND lines.order_id = orders.order_id
  AND placed < DATE '1997-03-15' AND shipped > DATE '1997-03-15'
GROUP BY lines.order_id, placed, priority ORDER BY revenue DESC, placed LIMIT 10;

-- name: late lines by priority
SELECT orders.priority, COUNT(*) AS late
FROM lines, orders
WHERE lines.order_id = orders.order_id AND placed >= DATE '1996-07-01' AND placed < DATE '1997-07-01'
  AND due < received AND flag = 'kept'
  AND EXISTS (SELECT * FROM customers WHERE customers.customer_id = orders.customer_id AND segment <> 'mills')
GROUP BY orders.priority ORDER BY orders.priority;

-- name: revenue from local suppliers
SELECT n.nation, SUM(l.price * (100 - l.discount) / 100) AS revenue
FROM customers c, orders o, lines l, suppliers s, nations n, regions r
WHERE c.customer_id = o.customer_id AND l.order_id = o.order_id AND l.supplier_id = s.supplier_id
  AND c.nation_id = s.nation_id AND s.nation_id = n.nation_id AND n.region_id = r.region_id
  AND r.region IN ('asia', 'europe') AND o.placed >= DATE '1995-01-01' AND o.placed < DATE '1998-01-01'
GROUP BY n.nation ORDER BY n.nation;

-- name: what smaller discounts would have brought
SELECT SUM(price * discount / 100) AS revenue FROM lines
WHERE shipped >= DATE '1996-01-01' AND shipped < DATE '1997-01-01' AND discount BETWEEN 5 AND 7 AND quantity < 24;

-- name: volume between two nations
SELECT supply, demand, year, SUM(volume) AS revenue
FROM (SELECT n1.nation AS supply, n2.nation AS demand, extract(year FROM l.shipped) AS year,
             l.price * (100 - l.discount) / 100 AS volume
      FROM suppliers s, lines l, orders o, customers c, nations n1, nations n2
      WHERE s.supplier_id = l.supplier_id AND o.order_id = l.order_id AND c.customer_id = o.customer_id
        AND s.nation_id = n1.nation_id AND c.nation_id = n2.nation_id
        AND ((n1.nation = 'france' AND n2.nation = 'india') OR (n1.nation = 'india' AND n2.nation = 'france'))
        AND l.shipped BETWEEN DATE '1995-01-01' AND DATE '1997-12-31') AS trade
GROUP BY supply, demand, year ORDER BY supply, demand, year;

-- name: market share of a nation
SELECT year, SUM(CASE WHEN nation = 'brazil' THEN volume ELSE 0 END) / SUM(volume) AS share
FROM (SELECT extract(year FROM o.placed) AS year, l.price * (100 - l.discount) / 100 AS volume, n2.nation AS nation
      FROM products p, suppliers s, lines l, orders o, customers c, nations n1, nations n2, regions r
      WHERE p.product_id = l.product_id AND s.supplier_id = l.supplier_id AND l.order_id = o.order_id
        AND o.customer_id = c.customer_id AND c.nation_id = n1.nation_id AND n1.region_id = r.region_id
        AND r.region <> 'africa' AND s.nation_id = n2.nation_id AND p.kind LIKE '%plated%') AS everything
GROUP BY year ORDER BY year;

-- name: profit by nation and year of green products
SELECT nation, year, SUM(amount) AS profit
FROM (SELECT n.nation, extract(year FROM o.placed) AS year,
             l.price * (100 - l.discount) / 100 - f.supply_cost * l.quantity / 10 AS amount
      FROM products p, suppliers s, lines l, offers f, orders o, nations n
      WHERE s.supplier_id = l.supplier_id AND f.supplier_id = l.supplier_id AND f.product_id = l.product_id
        AND p.product_id = l.product_id AND o.order_id = l.order_id AND s.nation_id = n.nation_id
        AND p.product LIKE '%green%') AS profits
GROUP BY nation, year ORDER BY nation, year DESC;

-- name: customers who return goods
SELECT c.customer_id, c.customer, SUM(l.price) AS lost, c.balance, n.nation
FROM customers c, orders o, lines l, nations n
WHERE c.customer_id = o.customer_id AND l.order_id = o.order_id AND l.flag = 'returned' AND c.nation_id = n.nation_id
GROUP BY c.customer_id, c.customer, c.balance, n.nation ORDER BY lost DESC, c.customer_id LIMIT 20;

-- name: most valuable stock
SELECT o.product_id, SUM(o.supply_cost * o.available) AS value
FROM offers o, suppliers s, nations n
WHERE o.supplier_id = s.supplier_id AND s.nation_id = n.nation_id AND n.nation = 'japan'
GROUP BY o.product_id
HAVING SUM(o.supply_cost * o.available) > (
  SELECT SUM(o.supply_cost * o.available) * 0.02 FROM offers o, suppliers s, nations n
  WHERE o.supplier_id = s.supplier_id AND s.nation_id = n.nation_id AND n.nation = 'japan')
ORDER BY value DESC, o.product_id;

-- name: urgent lines by mode
SELECT l.mode, SUM(CASE WHEN o.priority IN ('1-urgent', '2-high') THEN 1 ELSE 0 END) AS urgent,
       SUM(CASE WHEN o.priority NOT IN ('1-urgent', '2-high') THEN 1 ELSE 0 END) AS other
FROM orders o, lines l
WHERE o.order_id = l.order_id AND l.mode IN ('mail', 'ship') AND l.due < l.received AND l.shipped < l.due
  AND l.flag <> 'open' AND l.received >= DATE '1996-01-01' AND l.received < DATE '1998-01-01'
GROUP BY l.mode ORDER BY l.mode;

-- name: customers by number of orders
SELECT orders_made, COUNT(*) AS customers
FROM (SELECT c.customer_id, COUNT(o.order_id) AS orders_made
      FROM customers c LEFT JOIN orders o ON c.customer_id = o.customer_id AND o.remark NOT LIKE '%special%'
      GROUP BY c.customer_id) AS made
GROUP BY orders_made ORDER BY customers DESC, orders_made DESC;

-- name: share of plated products
SELECT 100.00 * SUM(CASE WHEN p.kind LIKE '%plated%' THEN l.price * (100 - l.discount) ELSE 0 END)
       / SUM(l.price * (100 - l.discount)) AS share
FROM lines l, products p
WHERE l.product_id = p.product_id AND l.shipped >= DATE '1996-09-01' AND l.shipped < DATE '1997-03-01';

-- name: best supplier
WITH revenue AS (
  SELECT supplier_id, SUM(price * (100 - discount) / 100) AS total FROM lines
  WHERE shipped >= DATE '1996-01-01' AND shipped < DATE '1996-07-01' GROUP BY supplier_id)
SELECT s.supplier_id, s.supplier, total
FROM suppliers s, revenue
WHERE s.supplier_id = revenue.supplier_id AND total = (SELECT MAX(total) FROM revenue)
ORDER BY s.supplier_id;

-- name: suppliers by brand, kind and size
SELECT p.brand, p.kind, p.size, COUNT(DISTINCT o.supplier_id) AS suppliers
FROM offers o, products p
WHERE p.product_id = o.product_id AND p.brand <> 'Brand 12' AND p.kind NOT LIKE 'medium%' AND p.size IN (3, 9, 14, 19)
  AND o.supplier_id NOT IN (SELECT supplier_id FROM suppliers WHERE note LIKE '%complaints%')
GROUP BY p.brand, p.kind, p.size ORDER BY suppliers DESC, p.brand, p.kind, p.size;

-- name: revenue of small lines
SELECT SUM(l.price) / 7.0 AS yearly
FROM lines l, products p
WHERE p.product_id = l.product_id AND p.container = 'small box'
  AND l.quantity < (SELECT 0.5 * AVG(i.quantity) FROM lines i WHERE i.product_id = p.product_id);

-- name: customers of large orders
SELECT c.segment, o.status, COUNT(*) AS many, SUM(l.quantity) AS units
FROM customers c, orders o, lines l
WHERE o.order_id IN (SELECT order_id FROM lines GROUP BY order_id HAVING SUM(price) > 2500)
  AND c.customer_id = o.customer_id AND o.order_id = l.order_id
GROUP BY c.segment, o.status ORDER BY c.segment, o.status;

-- name: revenue of three bundles
SELECT SUM(l.price * (100 - l.discount) / 100) AS revenue
FROM lines l, products p
WHERE (p.product_id = l.product_id AND p.brand = 'Brand 12' AND p.container IN ('small box', 'bag')
       AND l.quantity BETWEEN 1 AND 11 AND p.size BETWEEN 1 AND 10 AND l.mode IN ('air', 'truck'))
   OR (p.product_id = l.product_id AND p.brand = 'Brand 14' AND p.container IN ('large box', 'drum')
       AND l.quantity BETWEEN 10 AND 20 AND p.size BETWEEN 1 AND 15 AND l.mode IN ('air', 'truck'))
   OR (p.product_id = l.product_id AND p.brand = 'Brand 17' AND p.container IN ('bag', 'drum')
       AND l.quantity BETWEEN 20 AND 30 AND p.size BETWEEN 1 AND 20 AND l.mode IN ('air', 'truck'));

-- name: suppliers with too much in store
SELECT s.supplier, n.nation FROM suppliers s, nations n
WHERE s.nation_id = n.nation_id
  AND s.supplier_id IN (
    SELECT f.supplier_id FROM offers f
    WHERE f.product_id IN (SELECT product_id FROM products WHERE product LIKE 'green%')
      AND f.available > (SELECT 0.5 * SUM(l.quantity) FROM lines l
                         WHERE l.product_id = f.product_id AND l.supplier_id = f.supplier_id))
ORDER BY s.supplier;

-- name: suppliers who kept others waiting
SELECT s.supplier, COUNT(*) AS waits
FROM suppliers s, lines a, orders o, nations n
WHERE s.supplier_id = a.supplier_id AND o.order_id = a.order_id AND o.status = 'done' AND a.received > a.due
  AND EXISTS (SELECT * FROM lines b WHERE b.order_id = a.order_id AND b.supplier_id <> a.supplier_id)
  AND NOT EXISTS (SELECT * FROM lines b
                  WHERE b.order_id = a.order_id AND b.supplier_id <> a.supplier_id AND b.flag = 'returned')
  AND s.nation_id = n.nation_id AND n.nation IN ('egypt', 'canada')
GROUP BY s.supplier ORDER BY waits DESC, s.supplier LIMIT 20;

-- name: customers without orders by country code
SELECT code, COUNT(*) AS many, SUM(balance) AS balance
FROM (SELECT substring(phone, 1, 2) AS code, balance FROM customers c
      WHERE substring(phone, 1, 2) IN ('10', '12', '13', '15', '17')
        AND balance > (SELECT AVG(balance) FROM customers WHERE balance > 0.00)
        AND NOT EXISTS (SELECT * FROM orders o WHERE o.customer_id = c.customer_id)) AS idle
GROUP BY code ORDER BY code;
